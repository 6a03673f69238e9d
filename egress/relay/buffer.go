package relay

import (
	"sync"
	"sync/atomic"
)

// Sizes of buffers, of each direction. With large ones a copy takes fewer system calls.
const (
	bufferSize = 32 << 10
	largeSize  = 512 << 10
	maxLarge   = 64 // 32 MiB: all connections of a process could be busy
)

// A bufferPool has the buffers of connections that are passed on. A connection without traffic has none: ten thousand would take
// 640 MiB. The zero value is ready to use.
type bufferPool struct {
	large, small sync.Pool
	largeInUse   atomic.Int32
}

var buffers bufferPool

// take returns a buffer, for give.
func (p *bufferPool) take() []byte {
	if p.largeInUse.Add(1) > maxLarge {
		p.largeInUse.Add(-1)
		if b, ok := p.small.Get().(*[bufferSize]byte); ok {
			return b[:]
		}
		return make([]byte, bufferSize)
	}
	if b, ok := p.large.Get().(*[largeSize]byte); ok {
		return b[:]
	}
	return make([]byte, largeSize)
}

func (p *bufferPool) give(b []byte) {
	if len(b) == bufferSize {
		p.small.Put((*[bufferSize]byte)(b))
		return
	}
	p.large.Put((*[largeSize]byte)(b))
	p.largeInUse.Add(-1)
}
