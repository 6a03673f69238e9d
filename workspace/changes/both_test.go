package changes

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// both returns the patch of ListPatch, after comparing list and patch with those of List and Patch.
func (w *world) both() *Small {
	w.t.Helper()
	list, small, err := ListPatch(w.t.Context(), w, w.layer)
	check(w.t, err)
	want, err := List(w.t.Context(), w, w.layer, 0)
	check(w.t, err)
	if !reflect.DeepEqual(list, want) {
		w.t.Errorf("the list is %+v, want %+v", list, want)
	}
	if small == nil {
		return nil
	}
	if patch, sum := w.patch(); string(small.Text) != patch || !reflect.DeepEqual(small.Sum, *sum) {
		w.t.Errorf("%+v\n%s\nwant %+v\n%s", small.Sum, small.Text, sum, patch)
	}
	return small
}

// TestListPatch checks that ListPatch returns the list of List and the patch of Patch.
func TestListPatch(t *testing.T) {
	for _, tt := range patches {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(dir string) { tt.old(t, dir) })
			tt.new(t, w.merged)
			if small := w.both(); (small == nil) != (tt.name == "types" || tt.name == "odd names") {
				t.Errorf("%+v", small)
			}
		})
	}
}

// TestListPatchBounds checks that one change or one byte above the bounds, or a change that a list does not name,
// gives no patch.
func TestListPatchBounds(t *testing.T) {
	for _, tt := range []struct {
		name  string
		new   func(dir string)
		small bool
	}{
		{"nothing", func(string) {}, true},
		{"20 changes", func(dir string) { several(t, dir, 20) }, true},
		{"21 changes", func(dir string) { several(t, dir, 21) }, false},
		{"more than are listed", func(dir string) { several(t, dir, DefaultList+1) }, false},
		{"64 KiB", func(dir string) { write(t, dir, "new", strings.Repeat("x", maxSmallBytes)) }, true},
		{"one byte more", func(dir string) { write(t, dir, "new", strings.Repeat("x", maxSmallBytes+1)) }, false},
		{"together", func(dir string) {
			write(t, dir, "new", strings.Repeat("x", maxSmallBytes))
			write(t, dir, "more", "x")
		}, false},
		{"the old side", func(dir string) { write(t, dir, "large", "") }, false},
		{"a full directory", func(dir string) { check(t, os.RemoveAll(filepath.Join(dir, "full"))) }, false},
		{"an empty directory", func(dir string) {
			check(t, os.Remove(filepath.Join(dir, "empty")))
			write(t, dir, "a/after", "x")
			write(t, dir, "z", "x")
		}, true},
		{"a file in its place", func(dir string) {
			check(t, os.Remove(filepath.Join(dir, "empty")))
			write(t, dir, "empty", "x")
		}, true},
		{"what no patch says", func(dir string) {
			check(t, os.MkdirAll(filepath.Join(dir, "new/empty"), 0o755), os.Chmod(filepath.Join(dir, "full"), 0o700))
			write(t, dir, "b/.git/config", "x")
			write(t, dir, "z", "x")
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, func(dir string) {
				write(t, dir, "full/file", "x\n")
				write(t, dir, "large", strings.Repeat("x", maxSmallBytes+1))
				check(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
			})
			tt.new(w.merged)
			if small := w.both(); (small != nil) != tt.small {
				t.Errorf("%+v", small)
			}
		})
	}
}

func several(t *testing.T, dir string, n int) {
	for i := range n {
		write(t, dir, fmt.Sprint(i), "x\n")
	}
}
