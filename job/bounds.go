package job

import (
	"fmt"
	"iter"
	"path/filepath"
	"strings"
)

// Bounds are what a job must not do with paths of its repository, although its Workspace allows that. They are applied to what exists when
// the job starts. Each entry is a letter, a path relative to the repository and a NUL.
type Bounds string

// The letters. A path that is open can be written although "." is read-only. A hidden path cannot be
// read either: in its place a job sees an empty directory, or a file that it cannot open.
const (
	BoundOpen     = 'o'
	BoundReadOnly = 'r'
	BoundPinned   = 'p' // a directory that can be written, but not moved: with it would move what is in it
	BoundHidden   = 'h'
)

// MaxBounds is the maximum length of Bounds.
const MaxBounds = 2 << 10

// Add adds an entry.
func (b *Bounds) Add(letter byte, path string) { *b += Bounds(fmt.Sprintf("%c%s\x00", letter, path)) }

// Entries returns the entries, each with its NUL.
func (b Bounds) Entries() iter.Seq[string] {
	return func(yield func(string) bool) {
		for e := range strings.SplitAfterSeq(string(b), "\x00") {
			if e != "" && !yield(e) {
				return
			}
		}
	}
}

// Count returns the number of entries, and false if there is a mistake in them. The repository itself can only be read-only: a mount on it
// would lie over those of paths that are protected.
func (b Bounds) Count() (n int, ok bool) {
	if len(b) > MaxBounds || b != "" && b[len(b)-1] != 0 {
		return 0, false
	}
	for e := range b.Entries() {
		e = e[:len(e)-1]
		if e == "" || strings.IndexByte("orph", e[0]) < 0 || !filepath.IsLocal(e[1:]) || e[1:] != filepath.Clean(e[1:]) ||
			e[1:] == "." && e[0] != BoundReadOnly {
			return 0, false
		}
		n++
	}
	return n, true
}
