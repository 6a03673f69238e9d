package rpc

import (
	"sync"
)

// Bounds of what waits for a client that does not read.
const (
	maxDeltas  = 256 << 10 // bytes; above, output is not taken from the pipes of processes
	maxAnswers = 16 << 20  // bytes; above, nothing is read from the client
	maxFree    = 4         // buffers that are kept to be used again
)

// An item is one text on its way to the client.
type item struct {
	text []byte
	// make makes the text when it is time to write it: large answers are not held twice. nil is a text that is there.
	make func() []byte
	size int    // bytes it stands for
	sent func() // called when it is written, or will not be; nil is nothing
	loan bool   // the text is of buffer
}

// An outbox writes the texts of one connection in the order in which they are put.
type outbox struct {
	conn Conn
	done chan struct{} // closed when run has returned

	mu    sync.Mutex
	turn  *sync.Cond // of mu: something was put or written, or the end has come
	queue []item     // guarded by mu
	size  int        // guarded by mu: of queue, and of the write under way
	last  bool       // guarded by mu: nothing more comes
	err   error      // guarded by mu: why nothing is written any more
	free  [][]byte   // guarded by mu
}

func newOutbox(conn Conn) *outbox {
	o := &outbox{conn: conn, done: make(chan struct{})}
	o.turn = sync.NewCond(&o.mu)
	return o
}

// answer puts a text without waiting.
func (o *outbox) answer(text []byte) { o.put(item{text: text, size: len(text)}) }

// put puts an item without waiting.
func (o *outbox) put(i item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.push(i)
}

// delta puts a text of buffer, when little enough waits. It reports whether more is wanted.
func (o *outbox) delta(text []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.size > maxDeltas && o.err == nil {
		o.turn.Wait()
	}
	o.push(item{text: text, size: len(text), loan: true})
	return o.err == nil
}

// push is for one who holds the lock.
func (o *outbox) push(i item) {
	if o.err != nil || o.last {
		i.gone()
		return
	}
	o.queue = append(o.queue, i)
	o.size += i.size
	o.turn.Broadcast()
}

func (i *item) gone() {
	if i.sent != nil {
		i.sent()
	}
}

// buffer returns an empty buffer for a delta.
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

// run writes until the outbox is closed and empty, or writing fails.
func (o *outbox) run() {
	defer close(o.done)
	for {
		i, ok := o.take()
		if !ok {
			return
		}
		text := i.text
		if i.make != nil {
			text = i.make()
		}
		err := o.conn.Write(text)
		i.gone()
		o.wrote(i, err)
	}
}

// take waits for an item; there is none at the end.
func (o *outbox) take() (i item, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.queue) == 0 && !o.last && o.err == nil {
		o.turn.Wait()
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
	if i.loan && len(o.free) < maxFree {
		o.free = append(o.free, i.text)
	}
	if err != nil {
		o.fail(err)
	}
	o.turn.Broadcast()
}

// fail is for one who holds the lock.
func (o *outbox) fail(err error) {
	if o.err == nil {
		o.err = err
	}
	for n := range o.queue {
		o.queue[n].gone()
	}
	o.queue = nil
	o.turn.Broadcast()
}

// waitRoom returns when little enough waits for more to be read from the client; false at the end.
func (o *outbox) waitRoom() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.size > maxAnswers && o.err == nil && !o.last {
		o.turn.Wait()
	}
	return o.err == nil && !o.last
}

// close takes nothing more; what waits is written.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = true
	o.turn.Broadcast()
}

// abort drops what waits and what is to come.
func (o *outbox) abort(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail(err)
}

// failure is why nothing is written any more; nil if it did not come to that.
func (o *outbox) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
