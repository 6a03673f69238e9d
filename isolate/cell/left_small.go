package cell

import (
	"sync/atomic"

	"corral/internal/fault"
)

// Many thousand jobs that leave less than leftMin each could gather memory, too. So from time to time the supervisor looks at what all
// removed jobs of a jail have left together. If that is more than maxSmall, less memory counts as none.
const (
	// maxSmall is the maximum in bytes that jobs of a jail which left less than leftMin may leave together.
	maxSmall = 32 << 20
	// leftLeast replaces leftMin then: the kernel keeps a page or two of most jobs for a while.
	leftLeast = 8 << 10
)

// smallLeft is what jobs of a jail have left that left less than leftMin each.
type smallLeft struct {
	strict atomic.Bool // it is more than maxSmall

	mu      fault.Mutex
	removed int  // guarded by mu: groups removed since the last look
	looking bool // guarded by mu
}

// least returns the size in bytes up to which memory that a job has left counts as none.
func (l *smallLeft) least() int64 {
	if l.strict.Load() {
		return leftLeast
	}
	return leftMin
}

// due counts a removed group, and reports whether to look: those removed since the last look may have left most. The caller looks, and
// then calls looked.
func (l *smallLeft) due(most int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removed++
	if l.looking || int64(l.removed)*leftMin < most {
		return false
	}
	l.removed, l.looking = 0, true
	return true
}

// looked ends a look.
func (l *smallLeft) looked(strict bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looking = false
	l.strict.Store(strict)
}
