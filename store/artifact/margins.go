package artifact

import (
	"sync"

	safe "corral/internal/text"
)

// margins keep the beginning and the end of a stream, after redaction, to be shown, also while the job runs. A nil
// *margins keeps nothing.
type margins struct {
	size int // of each, in bytes

	mu   sync.Mutex
	head []byte // guarded by mu
	ring ring   // guarded by mu: what followed head

	pending []byte // guarded by mu: what follows, as far as it can be shown; empty at the end of the stream
}

func newMargins(size int) *margins {
	if size <= 0 {
		return nil
	}
	return &margins{size: size, ring: ring{size: size}}
}

// write appends p, without keeping a reference to it or to pending, which replaces that of the last call: see redact.Stream.Pending.
func (m *margins) write(p, pending []byte) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending = append(m.pending[:0], pending...)
	n := min(len(p), m.size-len(m.head))
	m.head = append(m.head, p[:n]...)
	m.ring.write(p[n:])
}

// both returns the beginning, the end, and the number of bytes between them, which begin and end with whole characters. If the stream has
// not ended, they have what is pending, but no part of a last character.
func (m *margins) both(ended bool) (head, tail string, between int64) {
	if m == nil {
		return "", "", 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	head, tail = string(m.head), string(m.ring.last(m.ring.total))
	between = m.ring.first()
	if between > 0 {
		kept := len(head) + len(tail)
		head, tail = safe.Complete(head), safe.Rest(tail)
		between += int64(kept - len(head) - len(tail))
	}
	switch {
	case ended:
	case between == 0 && tail == "":
		head = safe.Complete(head + string(m.pending))
	default:
		tail = safe.Complete(tail + string(m.pending))
	}
	return head, tail, between
}
