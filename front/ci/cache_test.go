package ci

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// leave makes the cache directory of a job with sparse files of a size, the last one the newest.
func leave(t *testing.T, size int64, names ...string) *os.Root {
	t.Helper()
	dir := t.TempDir()
	for n, name := range names {
		path := filepath.Join(dir, "cache", name)
		at := time.Unix(int64(1000+n), 0)
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600), os.Truncate(path, size), os.Chtimes(path, at, at),
		); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// stored lists what a store has, directories too.
func stored(t *testing.T, store string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(store, func(path string, _ os.DirEntry, err error) error {
		if name, _ := filepath.Rel(store, path); name != "." {
			list = append(list, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func names(prefix string, n int) []string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("%s%04d/cache.zip", prefix, i))
	}
	return list
}

// TestKeepSparse: sparse files of a job, which take no room in its directory, are not copied beyond the maximum size, not even for
// a moment.
func TestKeepSparse(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	dir := leave(t, 100<<10, names("a", 100)...)
	most := int64(0)
	watching := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			var sum int64
			_ = filepath.Walk(store, func(_ string, info os.FileInfo, err error) error {
				if err == nil && info.Mode().IsRegular() {
					sum += info.Size()
				}
				return nil
			})
			most = max(most, sum)
			select {
			case <-watching:
				return
			default:
			}
		}
	}()
	err := keepCache(dir, store, 400<<10)
	close(watching)
	<-done
	if err == nil {
		t.Error("nothing is said of the caches that were left out")
	}
	if got := stored(t, store); len(got) != 8 || !slices.Contains(got, "a0099/cache.zip") {
		t.Errorf("%v", got)
	}
	if most > 500<<10 {
		t.Errorf("the store had %d bytes", most)
	}
}

// TestKeepAlways: a store is cut down to its size however many files it has, whatever an earlier call has left in it, and although
// the caches of this job cannot be kept.
func TestKeepAlways(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	if err := keepCache(leave(t, 10, "old/cache.zip"), store, 1<<20); err != nil {
		t.Fatal(err)
	}
	fill(t, store, maxCaches+1) // by several jobs, with other names each
	left, now := filepath.Join(store, temporaryPrefix+"left"), filepath.Join(store, temporaryPrefix+"now")
	for _, path := range []string{left, now} {
		if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(left, time.Time{}, time.Now().Add(-2*abandonedAfter)); err != nil {
		t.Fatal(err)
	}
	dir := leave(t, 10, "new")
	fill(t, filepath.Join(dir.Name(), "cache"), maxCaches)
	if err := keepCache(dir, store, 100); err == nil {
		t.Error("more than the maximum number of caches were kept")
	}
	got := stored(t, store)
	if len(got) != 11 || !slices.Contains(got, filepath.Base(now)) || slices.Contains(got, filepath.Base(left)) || slices.Contains(got, "old") {
		t.Errorf("%d entries: %v", len(got), got)
	}
}

// fill makes files of 10 bytes, by links.
func fill(t *testing.T, dir string, files int) {
	t.Helper()
	first := filepath.Join(dir, "0")
	err := os.WriteFile(first, make([]byte, 10), 0o600)
	for n := range files - 1 {
		err = errors.Join(err, os.Link(first, fmt.Sprint(first, "-", n)))
	}
	if err != nil {
		t.Fatal(err)
	}
}
