package mcp

import (
	"context"
	"io"
	"sync"
)

// Bounds of what waits for a client that does not read.
const (
	maxWaitingNotes = 256 << 10 // above, progress is dropped
	maxWaitingRead  = 16 << 20  // above, nothing more is read from the client
	maxWaiting      = 64 << 20  // above, an answer is replaced by a short error
)

// An outbox writes the messages of one connection, each a line, in the order in which they were put or sent. Nobody who
// puts one waits for the client.
type outbox struct {
	out  io.Writer
	wake chan struct{} // cap 1: there is something to write, or the end
	room chan struct{} // cap 1: something was written
	done chan struct{} // closed when run has returned

	mu     sync.Mutex
	queue  [][]byte // guarded by mu
	size   int      // guarded by mu: bytes in queue, and in the write under way
	busy   bool     // guarded by mu: somebody writes
	closed bool     // guarded by mu
	err    error    // guarded by mu: why writing failed
}

func newOutbox(out io.Writer) *outbox {
	return &outbox{out: out, wake: make(chan struct{}, 1), room: make(chan struct{}, 1), done: make(chan struct{})}
}

// put queues an answer. When too much waits, a short error takes its place.
func (o *outbox) put(id, data []byte) {
	o.mu.Lock()
	o.push(o.bounded(id, data))
}

// send is put for who may wait for the client: it writes the answer itself when nobody else writes.
func (o *outbox) send(id, data []byte) {
	o.mu.Lock()
	data = o.bounded(id, data)
	if o.busy || o.closed || o.err != nil || len(o.queue) > 0 {
		o.push(data)
		return
	}
	o.busy = true
	o.size += len(data)
	o.mu.Unlock()
	o.write(data)
	o.mu.Lock()
	more := o.closed || len(o.queue) > 0
	o.mu.Unlock()
	if more { // run waits for it
		signal(o.wake)
	}
}

// bounded returns an answer, or the short error. The caller holds the lock.
func (o *outbox) bounded(id, data []byte) []byte {
	if o.size+len(data) <= maxWaiting {
		return data
	}
	return errorOf(id, refused(codeBusy, "the answer of %d bytes was dropped: %d MiB wait for the client to read",
		len(data), o.size>>20))
}

// note queues a notification, or drops it when the client is behind.
func (o *outbox) note(data []byte) {
	o.mu.Lock()
	if o.size > maxWaitingNotes {
		o.mu.Unlock()
		return
	}
	o.push(data)
}

// push queues a line. It takes over the lock.
func (o *outbox) push(data []byte) {
	defer signal(o.wake)
	defer o.mu.Unlock()
	if o.closed || o.err != nil {
		return
	}
	o.queue = append(o.queue, data)
	o.size += len(data)
}

// run writes until the outbox is closed and empty, or writing fails.
func (o *outbox) run() {
	defer close(o.done)
	for {
		line, last := o.take()
		switch {
		case line != nil:
			o.write(line)
		case last:
			return
		default:
			<-o.wake
		}
	}
}

// take returns what is to be written now, by who called it: nil when there is nothing, or when somebody else writes.
func (o *outbox) take() (line []byte, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy || len(o.queue) == 0 {
		return nil, o.err != nil || o.closed && !o.busy
	}
	line = o.queue[0]
	o.queue[0] = nil
	o.queue = o.queue[1:]
	o.busy = true
	return line, false
}

// write writes a line, whose writer is the caller alone.
func (o *outbox) write(line []byte) {
	_, err := o.out.Write(append(line, '\n'))
	o.mu.Lock()
	o.busy = false
	o.size -= len(line)
	o.mu.Unlock()
	if err != nil {
		o.fail(err)
	}
	signal(o.room)
}

// fail drops what waits and what is to come: nobody reads it.
func (o *outbox) fail(err error) {
	defer signal(o.wake)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	o.queue = nil
}

// waitRoom returns when little enough waits for more to be read from the client, or false when ctx has ended.
func (o *outbox) waitRoom(ctx context.Context) bool {
	for ctx.Err() == nil && o.waiting() > maxWaitingRead {
		select {
		case <-o.room:
		case <-o.done:
			return false
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

func (o *outbox) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.size
}

// failure is why writing ended; nil when it did not fail.
func (o *outbox) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// close takes nothing more; what waits is written.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	signal(o.wake)
}

// signal wakes the one who waits at c, now or next.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
