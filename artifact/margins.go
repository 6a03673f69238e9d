package artifact

import "sync"

// Margins keep the beginning of a stream and the end of it, after redaction, to be shown: while the job runs, too. Nil
// keeps nothing.
type margins struct {
	size int // of each, in bytes

	mu    sync.Mutex
	head  []byte // guarded by mu
	ring  []byte // guarded by mu: of what came after head; once it is full the next goes to (total - len(head)) % size
	total int64  // guarded by mu: bytes that came
}

func newMargins(size int) *margins {
	if size <= 0 {
		return nil
	}
	return &margins{size: size}
}

// write takes what comes next; p is the caller's again.
func (m *margins) write(p []byte) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
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
			m.ring = append(m.ring, make([]byte, m.size-len(m.ring))...) // all of it is written over now
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

// at is where in a full ring the next byte goes. The caller holds mu.
func (m *margins) at() int { return int((m.total - int64(len(m.head))) % int64(m.size)) }

// last returns the end of the stream, as far as it is not in head. The caller holds mu.
func (m *margins) last() []byte {
	if len(m.ring) < m.size {
		return append([]byte(nil), m.ring...)
	}
	return append(append(make([]byte, 0, m.size), m.ring[m.at():]...), m.ring[:m.at()]...)
}

// both returns the beginning, the end, and how many bytes are between them.
func (m *margins) both() (head, tail string, between int64) {
	if m == nil {
		return "", "", 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return string(m.head), string(m.last()), m.total - int64(len(m.head)) - int64(len(m.ring))
}
