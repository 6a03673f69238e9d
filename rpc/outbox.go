package rpc

import (
	"iter"
	"slices"
	"sync"
)

// Bounds on data that waits for a client to read.
const (
	maxDeltas  = 256 << 10 // bytes; above, output is not read from the pipes of processes
	maxAnswers = 16 << 20  // bytes; above, no messages are read from the client
	maxFree    = 4         // buffers kept for reuse
)

// An item is one text to be sent to the client.
type item struct {
	text []byte
	// build returns the text in pieces when it is about to be written, so that a large answer is not in memory twice. nil
	// if text is set.
	build  func() iter.Seq[[]byte]
	size   int    // bytes that count against the bounds
	sent   func() // called once the item is written or dropped; may be nil
	pooled bool   // text is from outbox.buffer
}

// An outbox writes the texts of one connection in the order in which they were put.
type outbox struct {
	conn Conn
	done chan struct{} // closed when run has returned

	mu      sync.Mutex
	changed *sync.Cond // on mu: an item was put or written, or the outbox was closed or failed
	queue   []item     // guarded by mu
	size    int        // guarded by mu: of queue and of the write in progress
	last    bool       // guarded by mu: close was called, nothing more is accepted
	err     error      // guarded by mu: why writing stopped
	free    [][]byte   // guarded by mu: buffers for reuse
}

func newOutbox(conn Conn) *outbox {
	o := &outbox{conn: conn, done: make(chan struct{})}
	o.changed = sync.NewCond(&o.mu)
	return o
}

// answer puts a text without blocking.
func (o *outbox) answer(text []byte) { o.put(item{text: text, size: len(text)}) }

// put puts an item without blocking.
func (o *outbox) put(i item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.push(i)
}

// delta puts a text that was built in a buffer from o.buffer. It blocks while more than maxDeltas bytes wait. It reports
// whether the client can still be written to.
func (o *outbox) delta(text []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.size > maxDeltas && o.err == nil {
		o.changed.Wait()
	}
	o.push(item{text: text, size: len(text), pooled: true})
	return o.err == nil
}

// push puts an item. The caller holds o.mu.
func (o *outbox) push(i item) {
	if o.err != nil || o.last {
		i.settled()
		return
	}
	o.queue = append(o.queue, i)
	o.size += i.size
	o.changed.Broadcast()
}

func (i *item) settled() {
	if i.sent != nil {
		i.sent()
	}
}

// buffer returns an empty buffer for a delta, or nil.
func (o *outbox) buffer() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.free); n > 0 {
		b := o.free[n-1]
		o.free = o.free[:n-1]
		return b[:0]
	}
	return nil
}

// run writes items until the outbox is closed and empty, or a write fails.
func (o *outbox) run() {
	defer close(o.done)
	for {
		i, ok := o.next()
		if !ok {
			return
		}
		err := o.write(&i)
		i.settled()
		o.wrote(i, err)
	}
}

func (o *outbox) write(i *item) error {
	switch {
	case i.build == nil:
		return o.conn.Write(i.text)
	case i.size <= maxWhole:
		return o.conn.Write(slices.Concat(slices.Collect(i.build())...))
	}
	return o.conn.WritePieces(i.build())
}

// next blocks until there is an item. It returns false once the outbox is closed and empty, or has failed.
func (o *outbox) next() (i item, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.queue) == 0 && !o.last && o.err == nil {
		o.changed.Wait()
	}
	if o.err != nil || len(o.queue) == 0 {
		return item{}, false
	}
	i = o.queue[0]
	o.queue[0] = item{}
	o.queue = o.queue[1:]
	return i, true
}

func (o *outbox) wrote(i item, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.size -= i.size
	if i.pooled && len(o.free) < maxFree {
		o.free = append(o.free, i.text)
	}
	if err != nil {
		o.fail(err)
	}
	o.changed.Broadcast()
}

// fail records the first error and drops the queue. The caller holds o.mu.
func (o *outbox) fail(err error) {
	if o.err == nil {
		o.err = err
	}
	for n := range o.queue {
		o.queue[n].settled()
	}
	o.queue = nil
	o.changed.Broadcast()
}

// waitForSpace blocks while more than maxAnswers bytes wait. It returns false once the outbox is closed or has failed.
func (o *outbox) waitForSpace() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.size > maxAnswers && o.err == nil && !o.last {
		o.changed.Wait()
	}
	return o.err == nil && !o.last
}

// close makes the outbox drop further items. Queued ones are still written.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = true
	o.changed.Broadcast()
}

// abort drops all queued items and makes the outbox drop further ones.
func (o *outbox) abort(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail(err)
}

// failure returns the error that stopped writing, or nil.
func (o *outbox) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
