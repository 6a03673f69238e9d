package layer

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// A room counts what layers may still grow to. Their files have holes: what is promised must be there when it is wanted,
// or one session's full disk is the host's.
type room struct {
	mu       sync.Mutex
	promised int64 // guarded by mu: bytes of all live layers
}

// reserve is the part of a file system that layers leave alone: a sixteenth.
const reserve = 16

// take promises bytes on the file system that dir is on. What live layers have filled already is counted twice, as used
// and as promised: on the safe side.
func (r *room) take(dir int, bytes int64) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(dir, &st); err != nil {
		return fmt.Errorf("statfs: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	free := int64(st.Bavail)*st.Bsize - int64(st.Blocks)*st.Bsize/reserve
	if r.promised+bytes > free {
		return fmt.Errorf("%w of %d MiB: %d MiB of the state directory's file system can be used, of which %d MiB are promised to other sessions\nhint: end sessions, ask for a smaller layer, or make room",
			ErrNoRoom, bytes>>20, max(free, 0)>>20, r.promised>>20)
	}
	r.promised += bytes
	return nil
}

func (r *room) give(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.promised -= bytes
}
