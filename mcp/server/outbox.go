package server

import (
	"context"
	"io"
	"sync"

	"corral/internal/jsonrpc"
)

// Limits of the messages buffered for a client that does not read.
const (
	maxWaitingNotes = 256 << 10 // bytes; above, progress is dropped
	maxWaitingRead  = 16 << 20  // above, reading from the client pauses
	maxWaiting      = 64 << 20  // above, a response is replaced by a short error
)

// An outbox writes the messages of one connection, one per line, in the order of the calls of put, send and note.
// put and note do not block.
type outbox struct {
	out  io.Writer
	wake chan struct{} // cap 1: there is something to write, or the outbox is closed
	room chan struct{} // cap 1: something was written
	done chan struct{} // closed when run returns

	mu     sync.Mutex
	queue  [][]byte // guarded by mu
	size   int      // guarded by mu: bytes in queue and in the current write
	busy   bool     // guarded by mu: a goroutine is writing
	closed bool     // guarded by mu
	err    error    // guarded by mu: error of a write
}

func newOutbox(out io.Writer) *outbox {
	return &outbox{out: out, wake: make(chan struct{}, 1), room: make(chan struct{}, 1), done: make(chan struct{})}
}

// put queues a response, or a short error instead if too much is queued.
func (o *outbox) put(id, data []byte) {
	o.mu.Lock()
	o.push(o.bounded(id, data))
}

// send is like put but may block: if nothing is queued and no other goroutine is writing, it writes directly,
// without a switch of goroutines.
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
	if more { // queued meanwhile, for run to write
		signal(o.wake)
	}
}

// bounded returns data, or a short error if too much is queued. The caller holds mu.
func (o *outbox) bounded(id, data []byte) []byte {
	if o.size+len(data) <= maxWaiting {
		return data
	}
	return dialect.Error(id, jsonrpc.Errorf(codeBusy, "the response of %d bytes was dropped: the client has not read the previous %d MiB",
		len(data), o.size>>20))
}

// note queues a notification. If the client is slow, it drops the notification.
func (o *outbox) note(data []byte) {
	o.mu.Lock()
	if o.size > maxWaitingNotes {
		o.mu.Unlock()
		return
	}
	o.push(data)
}

// push queues a line. The caller holds mu; push unlocks it.
func (o *outbox) push(data []byte) {
	defer signal(o.wake)
	defer o.mu.Unlock()
	if o.closed || o.err != nil {
		return
	}
	o.queue = append(o.queue, data)
	o.size += len(data)
}

// run writes until the outbox is closed and empty, or a write fails.
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

// take returns the next line for the caller to write, nil if the queue is empty or another goroutine is writing. last
// means that run is to return.
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

// write writes a line. The caller has set busy.
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

// fail drops all queued and future messages.
func (o *outbox) fail(err error) {
	defer signal(o.wake)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	o.queue = nil
}

// waitRoom blocks until at most maxWaitingRead bytes are queued and returns true, or returns false if ctx or run ended.
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

// failure returns the error that ended writing, nil if there was none.
func (o *outbox) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// close makes the outbox drop new messages; queued ones are still written.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	signal(o.wake)
}

// signal wakes the goroutine that waits on c, or the next that will.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
