package artifact

import (
	"sync"

	safe "corral/internal/text"
)

// margins keep the beginning and the end of a stream, after redaction, to be shown, also while the job runs. A nil
// *margins keeps nothing.
type margins struct {
	size int // of each, in bytes

	mu    sync.Mutex
	head  []byte // guarded by mu
	ring  []byte // guarded by mu: what followed head; once full, the next byte goes to (total - len(head)) % size
	total int64  // guarded by mu: bytes written so far

	pending []byte // guarded by mu: what follows, as far as it can be shown; empty at the end of the stream
}

func newMargins(size int) *margins {
	if size <= 0 {
		return nil
	}
	return &margins{size: size}
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
	m.total += int64(n)
	if p = p[n:]; len(p) == 0 {
		return
	}
	if skip := len(p) - m.size; skip > 0 {
		m.total += int64(skip)
		p = p[skip:]
		if len(m.ring) < m.size {
			m.ring = append(m.ring, make([]byte, m.size-len(m.ring))...) // everything in it is overwritten now
		}
	}
	grow := min(len(p), m.size-len(m.ring))
	m.ring = append(m.ring, p[:grow]...)
	m.total += int64(grow)
	for p = p[grow:]; len(p) > 0; {
		k := copy(m.ring[m.at():], p)
		m.total += int64(k)
		p = p[k:]
	}
}

// at returns where in a full ring the next byte goes. The caller holds mu.
func (m *margins) at() int { return int((m.total - int64(len(m.head))) % int64(m.size)) }

// last returns the end of the stream, without the bytes that are in head. The caller holds mu.
func (m *margins) last() []byte {
	if len(m.ring) < m.size {
		return append([]byte(nil), m.ring...)
	}
	return append(append(make([]byte, 0, m.size), m.ring[m.at():]...), m.ring[:m.at()]...)
}

// both returns the beginning, the end, and the number of bytes between them, which begin and end with whole characters. If the stream has
// not ended, they have what is pending, but no part of a last character.
func (m *margins) both(ended bool) (head, tail string, between int64) {
	if m == nil {
		return "", "", 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	head, tail = string(m.head), string(m.last())
	between = m.total - int64(len(head)+len(tail))
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
