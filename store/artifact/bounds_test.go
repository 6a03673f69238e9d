package artifact

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// TestConcurrentQueriesAreLimited: the number of concurrent queries is limited to the number of processors; further
// ones wait until one ends or their context is cancelled.
func TestConcurrentQueriesAreLimited(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	q := Query{Reader: ada, Handle: put(t, s, mine(), "x", "").Handle(), Range: &Range{Stdout, 1, 1}}
	if n := cap(s.reading); n != runtime.GOMAXPROCS(0) {
		t.Errorf("%d queries may run at once", n)
	}
	for range cap(s.reading) {
		s.reading <- struct{}{}
	}
	ctx, stop := context.WithCancel(t.Context())
	answered := make(chan error)
	for range 2 {
		go func() {
			_, err := s.Query(ctx, q)
			answered <- err
		}()
	}
	stop()
	for range 2 {
		if err := <-answered; !errors.Is(err, context.Canceled) {
			t.Errorf("a query did not wait: %v", err)
		}
	}
	<-s.reading
	for range 2 { // each releases the semaphore
		if a, err := s.Query(t.Context(), q); err != nil || len(a.Excerpts) != 1 {
			t.Errorf("%v, %v", a, err)
		}
	}
}

// A stopper cancels a context when it is written to.
type stopper struct {
	stop func()
	n    int
}

func (w *stopper) Write(p []byte) (int, error) {
	w.stop()
	w.n++
	return len(p), nil
}

// TestReadStopsWithContext: reading stops when its context is cancelled.
func TestReadStopsWithContext(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	h := put(t, s, mine(), numbered(100_000, 64), "").Handle()
	a, err := s.disk.Open(h)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	ctx, stop := context.WithCancel(t.Context())
	w := &stopper{stop: stop}
	if err := read(ctx, a, a.Manifest.Stream(Stdout), w); !errors.Is(err, context.Canceled) || w.n != 1 {
		t.Errorf("%v, after %d blocks", err, w.n)
	}
}

// TestAnswersAreBounded: an answer is bounded in lines, and in bytes, also for excerpts of both streams.
func TestAnswersAreBounded(t *testing.T) {
	sandboxtest.OneGoroutine(t)
	s := openStore(t, t.TempDir(), Options{})
	long := strings.Repeat("\xc3\xa4", maxLine) + "\n"
	h := put(t, s, mine(), strings.Repeat("\n", 50_000), "").Handle()
	a, err := s.Query(t.Context(), Query{Reader: ada, Handle: h, Range: &Range{Stdout, 11, 1 << 40}})
	if err != nil || !a.Truncated || len(a.Excerpts) != 1 || a.Excerpts[0].LineEnd != 10+20_000 {
		t.Fatalf("%+v, %v", a, err)
	}
	h = put(t, s, mine(), strings.Repeat(long, 2000), strings.Repeat(long, 2000)).Handle()
	for name, q := range map[string]Query{
		"both streams":   {Terms: []string{"ä"}, Excerpts: 100, Context: 20},
		"one excerpt":    {Terms: []string{"ä"}, Excerpts: 1, Context: 5000},
		"lines and more": {Terms: []string{"ä"}, Excerpts: 100, Context: 20, Range: &Range{Stdout, 1, 600}},
	} {
		q.Reader, q.Handle = ada, h
		a, err := s.Query(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, x := range a.Excerpts {
			size += len(x.Content)
		}
		if !a.Truncated || size > maxText+len(long) || size < maxText/2 {
			t.Errorf("%s: %d bytes in %d excerpts, truncated %v", name, size, len(a.Excerpts), a.Truncated)
		}
	}
	if a, err := s.Query(t.Context(), Query{Reader: ada, Handle: h, Terms: []string{"ä"}, Excerpts: 10, Context: 3}); err != nil || a.Truncated {
		t.Errorf("short answer: %v", err)
	}
}

// TestAgeCountsFromCommit: the age of an artifact counts from its commit, not from the start of its job.
func TestAgeCountsFromCommit(t *testing.T) {
	c := newClock()
	s := openStore(t, t.TempDir(), Options{Now: c.now, MaxCount: 3})
	long := s.Begin(mine())
	stdout, stderr, err := long.Streams()
	if err != nil {
		t.Fatal(err)
	}
	c.advance(time.Second)
	first := put(t, s, mine(), "first", "").Handle()
	c.advance(time.Second)
	put(t, s, mine(), "second", "")
	c.advance(time.Second)
	if err := errors.Join(stdout.Close(), stderr.Close()); err != nil {
		t.Fatal(err)
	}
	long.Finish(record())
	for i := range 2 {
		c.advance(time.Second)
		put(t, s, mine(), fmt.Sprint(i), "")
		if _, _, err := content(s, ada, long.Handle()); err != nil {
			t.Fatalf("the newest was evicted: %v", err)
		}
	}
	if _, _, err := content(s, ada, first); !errors.Is(err, ErrNotFound) {
		t.Errorf("the oldest: %v", err)
	}
}

// TestDamagedManifest: only its owner learns that an artifact's manifest is damaged.
func TestDamagedManifest(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	for _, text := range []string{"x", numbered(10_000, 64)} { // one written at the end, and one written while it arrives
		h := put(t, s, mine(), text, "").Handle()
		if err := os.WriteFile(filepath.Join(dir, dirName, h, manifestName), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		ask := func(r Reader) error {
			_, err := s.Query(t.Context(), Query{Reader: r, Handle: h, Range: &Range{Stdout, 1, 1}})
			return err
		}
		eve := Reader{Principal: "user:eve", Repos: []string{"my.repo"}}
		if err := ask(eve); !errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt) {
			t.Errorf("another principal got %v", err)
		}
		for _, r := range []Reader{ada, {Owner: true}} {
			if err := ask(r); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%+v got %v", r, err)
			}
		}
		if err := os.Remove(filepath.Join(dir, dirName, h, "stdout.gz")); err != nil {
			t.Fatal(err)
		}
		if err := ask(ada); !errors.Is(err, ErrCorrupt) {
			t.Errorf("with one stream: %v", err)
		}
	}
}

// TestTruncatedUnstored: output that is not stored is reported as truncated exactly where it would be truncated.
func TestTruncatedUnstored(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{StreamBytes: minStream})
	for _, persist := range []bool{true, false} {
		for _, over := range []int{0, 1} {
			b := mine()
			b.Persist = persist
			out := s.Begin(b)
			stdout, stderr, err := out.Streams()
			if err != nil {
				t.Fatal(err)
			}
			stderr.Close()
			if _, err := stdout.WriteString(strings.Repeat("x", minStream+over)); err != nil {
				t.Fatal(err)
			}
			stdout.Close()
			r := record()
			out.Finish(r)
			c, want := out.Captured(), map[int]string{1: job.LimitOutput}[over]
			if c.Stdout.Truncated != (over > 0) || c.Stderr.Truncated || r.Result.Limit != want || (c.Handle != "") != persist {
				t.Errorf("persist %v, %d bytes over: %+v, limit %q", persist, over, c, r.Result.Limit)
			}
		}
	}
}
