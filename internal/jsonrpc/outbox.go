package jsonrpc

import (
	"context"
	"encoding/json"
	"iter"
	"sync"
)

// maxFree is the maximum number of buffers that an Outbox keeps for reuse.
const maxFree = 4

// An Item is one message to be sent to the client.
type Item struct {
	ID   json.RawMessage // of the request that Text answers; for Outbox.Replace
	Text []byte
	// Build returns the message in pieces when it is about to be written, so that a large one is not in memory twice. nil: see Text.
	Build  func() iter.Seq[[]byte]
	Size   int    // bytes that count against the bounds in addition to Text
	Sent   func() // called once the item is written or dropped; may be nil
	Pooled bool   // Text is from Outbox.Buffer
}

func (i *Item) size() int { return i.Size + len(i.Text) }

func (i *Item) settled() {
	if i.Sent != nil {
		i.Sent()
	}
}

// An Outbox writes the messages of one connection in the order in which they were put.
type Outbox struct {
	// Replace, if not nil, returns what is sent in place of an item that Put or Send gets while waiting bytes wait. It must not block.
	Replace func(i Item, waiting int) Item

	write func(i *Item) error
	done  chan struct{} // closed when Run has returned

	mu      sync.Mutex
	changed *sync.Cond // on mu: an item was put or written, or the outbox was closed or failed
	queue   []Item     // guarded by mu
	size    int        // guarded by mu: of queue and of the write in progress
	busy    bool       // guarded by mu: a goroutine is writing
	closed  bool       // guarded by mu: nothing more is accepted
	err     error      // guarded by mu: why writing stopped
	free    [][]byte   // guarded by mu: buffers for reuse
}

// NewOutbox returns an outbox that write, which is called for one item at a time, writes.
func NewOutbox(write func(i *Item) error) *Outbox {
	o := &Outbox{write: write, done: make(chan struct{})}
	o.changed = sync.NewCond(&o.mu)
	return o
}

// Done returns a channel that is closed when Run has returned.
func (o *Outbox) Done() <-chan struct{} { return o.done }

// Run writes items until the outbox is closed and empty, or a write fails.
func (o *Outbox) Run() {
	defer close(o.done)
	for {
		i, ok := o.next()
		if !ok {
			return
		}
		o.writeItem(&i)
	}
}

// next blocks until there is an item and no other goroutine is writing. It returns false once the outbox is closed and empty, or has
// failed.
func (o *Outbox) next() (i Item, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && (o.busy || len(o.queue) == 0 && !o.closed) {
		o.changed.Wait()
	}
	if o.err != nil || len(o.queue) == 0 {
		return Item{}, false
	}
	i = o.queue[0]
	o.queue[0] = Item{}
	o.queue = o.queue[1:]
	o.busy = true
	return i, true
}

// writeItem writes an item, which o.size counts. The caller has set o.busy.
func (o *Outbox) writeItem(i *Item) {
	size := i.size()
	err := o.write(i)
	i.settled()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.busy = false
	o.size -= size
	if i.Pooled && len(o.free) < maxFree {
		o.free = append(o.free, i.Text)
	}
	if err != nil {
		o.fail(err)
	}
	o.changed.Broadcast()
}

// Put puts an item without blocking.
func (o *Outbox) Put(i Item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.push(o.replaced(i))
}

// Send is like Put but may block: if nothing is queued and no other goroutine is writing, it writes directly, without a switch of
// goroutines.
func (o *Outbox) Send(i Item) {
	o.mu.Lock()
	i = o.replaced(i)
	if o.busy || o.closed || o.err != nil || len(o.queue) > 0 {
		o.push(i)
		o.mu.Unlock()
		return
	}
	o.busy = true
	o.size += i.size()
	o.mu.Unlock()
	o.writeItem(&i)
}

// PutBelow puts an item unless more than limit bytes wait: then it is dropped.
func (o *Outbox) PutBelow(limit int, i Item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.size <= limit {
		o.push(i)
	}
}

// PutAfter puts an item. It blocks while more than limit bytes wait, and reports whether the client can still be written to.
func (o *Outbox) PutAfter(limit int, i Item) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.size > limit && o.err == nil {
		o.changed.Wait()
	}
	o.push(i)
	return o.err == nil
}

// replaced returns what Replace does. The caller holds o.mu.
func (o *Outbox) replaced(i Item) Item {
	if o.Replace == nil {
		return i
	}
	return o.Replace(i, o.size)
}

// push queues an item. The caller holds o.mu.
func (o *Outbox) push(i Item) {
	if o.err != nil || o.closed {
		i.settled()
		return
	}
	o.queue = append(o.queue, i)
	o.size += i.size()
	o.changed.Broadcast()
}

// Buffer returns an empty buffer for the text of an item that is Pooled, or nil.
func (o *Outbox) Buffer() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.free); n > 0 {
		b := o.free[n-1]
		o.free = o.free[:n-1]
		return b[:0]
	}
	return nil
}

// WaitBelow blocks while more than limit bytes wait. It returns false once the outbox is closed or has failed, or ctx has ended.
func (o *Outbox) WaitBelow(ctx context.Context, limit int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.size > limit {
		defer context.AfterFunc(ctx, o.wake)()
	}
	for o.size > limit && o.err == nil && !o.closed && ctx.Err() == nil {
		o.changed.Wait()
	}
	return o.err == nil && !o.closed && ctx.Err() == nil
}

func (o *Outbox) wake() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed.Broadcast()
}

// Close makes the outbox drop further items. Queued ones are still written.
func (o *Outbox) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.changed.Broadcast()
}

// Fail drops all queued items and makes the outbox drop further ones.
func (o *Outbox) Fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail(err)
}

// fail records the first error and drops the queue. The caller holds o.mu.
func (o *Outbox) fail(err error) {
	if o.err == nil {
		o.err = err
	}
	for n := range o.queue {
		o.size -= o.queue[n].size()
		o.queue[n].settled()
	}
	o.queue = nil
	o.changed.Broadcast()
}

// Failure returns the error that stopped writing, or nil.
func (o *Outbox) Failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Waiting returns the number of bytes that wait.
func (o *Outbox) Waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.size
}
