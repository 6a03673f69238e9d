package rpc

import (
	"os"
	"sync"
	"time"

	"corral/internal/jsonrpc"
	"corral/internal/pipe"
)

// Bounds on the input that waits for one process.
const (
	maxAhead      = 4 << 20  // bytes; above, a write is answered only once less waits, which slows a client that waits for answers
	maxInput      = 64 << 20 // bytes; above, a write is refused
	chunkOverhead = 256      // bytes counted per write in addition to its data
)

// A chunk is one write request.
type chunk struct {
	data  []byte
	last  bool   // close the input after this chunk
	reply func() // answers the client; nil once answered
}

func (k *chunk) answer() {
	if k.reply != nil {
		k.reply()
		k.reply = nil
	}
}

// An input feeds a process with what its client writes.
type input struct {
	s         *Server
	principal string
	wake      chan struct{} // cap 1: there is work for feed
	done      chan struct{} // closed when feed has returned; nil before it is started

	mu           sync.Mutex
	queue        []chunk  // guarded by mu
	waiting      int      // guarded by mu: bytes of queue and of the write in progress, reserved in the server's budget
	closed       bool     // guarded by mu: the client closed the input, or the process closed its end
	processEnded bool     // guarded by mu: the process has ended
	file         *os.File // guarded by mu: the pipe or the terminal; nil until open

	// Set before feed is started.
	tty bool // file is a terminal, which is closed by screen.close
	// midLine reports that the last byte written did not end a line. Used by feed only.
	midLine bool
}

func newInput(s *Server, principal string) *input {
	return &input{s: s, principal: principal, wake: make(chan struct{}, 1)}
}

// put queues a chunk, which is answered now or later, or refuses it.
func (i *input) put(k chunk) *jsonrpc.Error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(k.data) == 0 && !k.last || i.closed && len(k.data) == 0 {
		k.answer()
		return nil
	}
	if i.closed {
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "stdin is already closed")
	}
	if i.waiting+len(k.data) > maxInput || !i.s.reserve(i.principal, len(k.data)+chunkOverhead) {
		return jsonrpc.Errorf(codeBusy, "%d bytes of input are queued for the process: wait until earlier writes are answered", i.waiting)
	}
	i.waiting += len(k.data) + chunkOverhead
	i.closed = k.last
	if i.waiting <= maxAhead {
		k.answer()
	}
	i.queue = append(i.queue, k)
	signal(i.wake)
	return nil
}

// pipe creates the pipe of a process, starts feeding it, and returns the read end, which the caller owns.
func (i *input) pipe() (*os.File, error) {
	file, job, err := pipe.New(pipe.Writes)
	if err != nil {
		return nil, err
	}
	i.open(file, false)
	return job, nil
}

// open starts feeding file. It takes ownership of a pipe; a terminal must stay open until end has returned.
func (i *input) open(file *os.File, tty bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.file, i.tty, i.done = file, tty, make(chan struct{})
	go i.feed(file)
}

// feed writes queued chunks until the process ends.
func (i *input) feed(file *os.File) {
	defer close(i.done)
	for range i.wake {
		for k, ok := i.next(); ok; k, ok = i.next() {
			i.write(file, &k)
			i.wrote(&k)
		}
		if i.ended() {
			return
		}
	}
}

func (i *input) write(file *os.File, k *chunk) {
	if n := len(k.data); n > 0 {
		if _, err := file.Write(k.data); err != nil {
			i.discard()
		}
		i.midLine = k.data[n-1] != '\n' && k.data[n-1] != '\r'
	}
	switch {
	case k.last && i.tty:
		sendEOF(file, i.midLine)
	case k.last:
		file.Close()
	}
}

func (i *input) next() (chunk, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.processEnded || len(i.queue) == 0 {
		return chunk{}, false
	}
	k := i.queue[0]
	i.queue[0] = chunk{}
	i.queue = i.queue[1:]
	return k, true
}

// wrote releases the budget of a written chunk, and answers the queued chunks that now have at most maxAhead bytes before
// them.
func (i *input) wrote(k *chunk) {
	i.mu.Lock()
	defer i.mu.Unlock()
	k.answer()
	i.waiting -= len(k.data) + chunkOverhead
	i.s.release(i.principal, len(k.data)+chunkOverhead)
	ahead := 0
	for n := range i.queue {
		if ahead += len(i.queue[n].data) + chunkOverhead; ahead > maxAhead {
			return
		}
		i.queue[n].answer()
	}
}

// discard closes the input because nobody reads it. Queued data is dropped, as with a pipe whose reader is gone.
func (i *input) discard() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	i.dropQueue()
}

// dropQueue answers and drops all queued chunks. The caller holds i.mu.
func (i *input) dropQueue() {
	for n := range i.queue {
		k := &i.queue[n]
		k.answer()
		i.waiting -= len(k.data) + chunkOverhead
		i.s.release(i.principal, len(k.data)+chunkOverhead)
	}
	i.queue = nil
}

func (i *input) ended() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.processEnded
}

// end stops feeding a process that has ended, and waits for feed to return.
func (i *input) end() {
	i.mu.Lock()
	i.closed, i.processEnded = true, true
	i.dropQueue()
	file, done := i.file, i.done
	i.mu.Unlock()
	if file == nil {
		return
	}
	_ = file.SetWriteDeadline(time.Unix(1, 0)) // fails only if file is closed
	signal(i.wake)
	<-done
	if !i.tty {
		file.Close() // may be closed already
	}
}

// signal wakes the goroutine that waits at c, or its next wait. It does not block.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
