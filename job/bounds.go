package job

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Bounds are what a job must not do with paths of its repository, although its Workspace allows that. They are applied to what exists when
// the job starts, in the order of the list, which is a letter, a path relative to the repository and a NUL for each.
type Bounds string

// The letters. A path that is open can be written although "." is read-only: the paths that are open come first. A hidden path cannot be
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

// Count returns the number of entries, and false if there is a mistake in them. The repository itself can only be read-only: a mount on it
// would lie over those of paths that are protected.
func (b Bounds) Count() (n int, ok bool) {
	if len(b) > MaxBounds || b != "" && b[len(b)-1] != 0 {
		return 0, false
	}
	for e := range strings.SplitSeq(strings.TrimSuffix(string(b), "\x00"), "\x00") {
		if b == "" {
			break
		}
		if e == "" || strings.IndexByte("orph", e[0]) < 0 || !filepath.IsLocal(e[1:]) || e[1:] != filepath.Clean(e[1:]) ||
			e[1:] == "." && e[0] != BoundReadOnly {
			return 0, false
		}
		n++
	}
	return n, true
}
