package rpc

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of the input that waits for one process.
const (
	maxAhead = 4 << 20  // bytes; above, a write is answered when less waits: a client that waits for answers is slowed
	maxInput = 64 << 20 // bytes; above, a write is refused
	perChunk = 256      // bytes that one write costs beside its own
)

// A chunk is one write of a client.
type chunk struct {
	data  []byte
	last  bool   // nothing comes after it
	taken func() // answers the client; nil when it is answered
}

func (k *chunk) answer() {
	if k.taken != nil {
		k.taken()
		k.taken = nil
	}
}

// An input is what a process reads, as its client sends it.
type input struct {
	s    *Server
	wake chan struct{} // cap 1: there is something to do
	done chan struct{} // closed when the writer has returned; nil before it is started

	mu      sync.Mutex
	queue   []chunk  // guarded by mu
	waiting int      // guarded by mu: bytes of queue and of the write under way, taken of the server's budget
	closed  bool     // guarded by mu: the client has closed it, or nobody reads it
	over    bool     // guarded by mu: the process has ended
	file    *os.File // guarded by mu: the pipe or the terminal; nil before there is one

	// Set before the writer is started.
	tty bool // file is a terminal, which somebody else closes
	// midLine says that the last byte that was typed has not ended its line. Of the writer.
	midLine bool
}

func newInput(s *Server) *input { return &input{s: s, wake: make(chan struct{}, 1)} }

// put takes a chunk, whose answer is given now or later, or refuses it.
func (i *input) put(k chunk) *fault {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(k.data) == 0 && !k.last || i.closed && len(k.data) == 0 {
		k.answer()
		return nil
	}
	if i.closed {
		return faultOf(codeRequest, "stdin is already closed")
	}
	if i.waiting+len(k.data) > maxInput || !i.s.hold(len(k.data)+perChunk) {
		return faultOf(codeBusy, "%d bytes wait for the process to read: wait for earlier writes to be answered", i.waiting)
	}
	i.waiting += len(k.data) + perChunk
	i.closed = k.last
	if i.waiting <= maxAhead {
		k.answer()
	}
	i.queue = append(i.queue, k)
	signal(i.wake)
	return nil
}

// pipe makes the pipe of a process, and returns its end.
func (i *input) pipe() (*os.File, error) {
	var p [2]int
	// Not os.Pipe: it would make the job's end non-blocking, too, which programs do not expect of their input.
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	job := os.NewFile(uintptr(p[0]), "|0")
	if err := unix.SetNonblock(p[1], true); err != nil {
		unix.Close(p[1])
		job.Close()
		return nil, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(p[1]), "|1")
	i.open(file, false)
	return job, nil
}

// open begins to write to file: a pipe, which it takes over, or a terminal, which is closed after end.
func (i *input) open(file *os.File, tty bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.file, i.tty, i.done = file, tty, make(chan struct{})
	go i.feed(file)
}

// feed writes what comes until the process ends.
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
			i.refuse()
		}
		i.midLine = k.data[n-1] != '\n' && k.data[n-1] != '\r'
	}
	switch {
	case k.last && i.tty:
		hangUp(file, i.midLine)
	case k.last:
		file.Close()
	}
}

func (i *input) next() (chunk, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.over || len(i.queue) == 0 {
		return chunk{}, false
	}
	k := i.queue[0]
	i.queue[0] = chunk{}
	i.queue = i.queue[1:]
	return k, true
}

// wrote gives back what a chunk has taken, and answers those that little enough is before now.
func (i *input) wrote(k *chunk) {
	i.mu.Lock()
	defer i.mu.Unlock()
	k.answer()
	i.waiting -= len(k.data) + perChunk
	i.s.release(len(k.data) + perChunk)
	ahead := 0
	for n := range i.queue {
		if ahead += len(i.queue[n].data) + perChunk; ahead > maxAhead {
			return
		}
		i.queue[n].answer()
	}
}

// refuse takes nothing more: nobody reads it. What was taken is forgotten, as a pipe forgets it.
func (i *input) refuse() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	i.drop()
}

// drop is for one who holds the lock.
func (i *input) drop() {
	for n := range i.queue {
		k := &i.queue[n]
		k.answer()
		i.waiting -= len(k.data) + perChunk
		i.s.release(len(k.data) + perChunk)
	}
	i.queue = nil
}

func (i *input) ended() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.over
}

// end is for a process that has ended: it stops the writer, and waits for that.
func (i *input) end() {
	i.mu.Lock()
	i.closed, i.over = true, true
	i.drop()
	file, done := i.file, i.done
	i.mu.Unlock()
	if file == nil {
		return
	}
	_ = file.SetWriteDeadline(time.Unix(1, 0)) // an error is of a file that is closed
	signal(i.wake)
	<-done
	if !i.tty {
		file.Close() // which may have been done
	}
}

// signal wakes the one who waits at c, now or next.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
