package index

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestPurge checks that others that have a purged base open notice, and add to a new one.
func TestPurge(t *testing.T) {
	dir := t.TempDir()
	x, other := openIn(t, dir, Options{}), openIn(t, dir, Options{})
	elsewhere := Base{Repo: "/elsewhere", Principal: testBase.Principal}
	if _, err := x.Add(t.Context(), elsewhere, Source{Label: "l"}, strings.NewReader("kestrel\n")); err != nil {
		t.Fatal(err)
	}
	add(t, x, Source{Label: "l"}, "kestrel one\n")
	add(t, other, Source{Label: "l"}, "kestrel two\n")
	removed, err := other.Purge(t.Context(), testBase)
	if err != nil || removed.Sources != 2 || removed.Sections != 2 {
		t.Errorf("purged %+v, %v", removed, err)
	}
	for _, y := range []*Index{x, other} {
		if f := find(t, y, Query{Text: "kestrel"}); !f.Empty {
			t.Errorf("after a purge: %+v", f)
		}
	}
	if names := filesOf(t, dir); slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, testBase.Prefix()) }) {
		t.Errorf("files %v", names)
	}
	if a := add(t, x, Source{Label: "l"}, "kestrel three\n"); a.Name != "l#1" {
		t.Errorf("name %s", a.Name)
	}
	if got := sourcesOf(t, other, "kestrel one two three"); !slices.Equal(got, []string{"l#1"}) {
		t.Errorf("found in %v", got)
	}
	if f, err := other.Search(t.Context(), elsewhere, Query{Text: "kestrel"}); err != nil || len(f.Hits) != 1 {
		t.Errorf("another base: %+v, %v", f, err)
	}
}

// TestPurgeDuringAdd checks that an Add fails when its base is purged, and does not bring it back.
func TestPurgeDuringAdd(t *testing.T) {
	dir := t.TempDir()
	x, other := openIn(t, dir, Options{}), openIn(t, dir, Options{})
	text := io.MultiReader(strings.NewReader(numbered("kestrel", 30_000)), readerFunc(func([]byte) (int, error) {
		if _, err := other.Purge(t.Context(), testBase); err != nil {
			t.Error(err)
		}
		return 0, io.EOF
	}))
	if a, err := x.Add(t.Context(), testBase, Source{Label: "l"}, text); !errors.Is(err, ErrPurged) {
		t.Errorf("added %+v, %v", a, err)
	}
	if f := find(t, x, Query{Text: "kestrel1"}); !f.Empty {
		t.Errorf("found %+v", f)
	}
}

// TestUnprivileged checks that a user can use a directory below parents that may only be traversed.
func TestUnprivileged(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	const nobody = 65534
	top, err := os.MkdirTemp("", "index-test-") //nolint:usetesting // other users cannot traverse the parents of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	own := filepath.Join(top, "users", "nobody")
	if err := os.MkdirAll(own, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Dir(own), top} {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(own, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	c := startAdder(t, own, "nobody", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}})
	c.next(t)
	c.end(t)

	// Another user's base is refused, even for root.
	x := openIn(t, own, Options{})
	if _, err := x.Add(t.Context(), testBase, Source{Label: "l"}, bytes.NewReader(nil)); err == nil || !strings.Contains(err.Error(), "owned by another user") {
		t.Errorf("error %v", err)
	}
	if _, err := x.Search(t.Context(), testBase, Query{Text: "common"}); err == nil {
		t.Error("another user's base was searched")
	}
}
