package rpc

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
)

// grace is how long, after a job's end, its pipes may still have a writer that is not of the job.
const grace = 50 * time.Millisecond

// An output takes what one process writes: job.Output, and more (job.Feeder, job.Screen).
type output struct {
	p        *process
	finished bool // of the goroutine that runs the process

	mu       sync.Mutex
	streams  []*stream   // guarded by mu: stdout and stderr, or the terminal's one; none before they are made
	overflow atomic.Bool // the budget has ended
}

func newOutput(p *process) *output { return &output{p: p} }

var (
	_ job.Feeder = (*output)(nil)
	_ job.Screen = (*output)(nil)
)

// Handle implements job.Output: nothing is stored.
func (o *output) Handle() string { return "" }

// Stdin implements job.Feeder.
func (o *output) Stdin() (*os.File, error) { return o.p.input.pipe() }

// Streams implements job.Output.
func (o *output) Streams() (stdout, stderr *os.File, err error) {
	var ends [2]*os.File
	for n, name := range [...]string{"stdout", "stderr"} {
		var p [2]int
		// Not os.Pipe: it would make the job's end non-blocking, too, which programs do not expect of their output.
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			if n > 0 {
				ends[0].Close()
			}
			return nil, nil, os.NewSyscallError("pipe2", err)
		}
		_ = unix.SetNonblock(p[0], true) // it is ours and open
		ends[n] = os.NewFile(uintptr(p[1]), "|1")
		o.begin(name, os.NewFile(uintptr(p[0]), "|0"), false)
	}
	return ends[0], ends[1], nil
}

// Terminal implements job.Screen.
func (o *output) Terminal(master *os.File) {
	file, err := o.p.screen.open(master)
	if err != nil {
		o.p.cancel(err)
		return
	}
	o.p.announce()
	o.begin("stdout", file, true)
	o.p.input.open(file, true)
}

func (o *output) begin(name string, file *os.File, tty bool) {
	s := newStream(o, name, file, tty)
	o.mu.Lock()
	o.streams = append(o.streams, s)
	o.mu.Unlock()
	go s.read()
}

func (o *output) all() []*stream {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.streams
}

// Written implements job.Output.
func (o *output) Written() (stdout, stderr int64) {
	var n [2]int64
	for i, s := range o.all() {
		n[i] = s.total.Load()
	}
	return n[0], n[1]
}

// Finish implements job.Output. It does not wait for the client, who may not read what is left: see wait.
func (o *output) Finish(*job.Record) {
	o.finished = true
	o.p.announce()
	o.stop(grace)
}

// Discard implements job.Output.
func (o *output) Discard() {
	if !o.finished {
		o.stop(0)
	}
}

func (o *output) stop(d time.Duration) {
	for _, s := range o.all() {
		_ = s.file.SetReadDeadline(time.Now().Add(d)) // an error is of a file that is closed
	}
}

// wait waits until all output is on its way to the client, or kept.
func (o *output) wait() {
	for _, s := range o.all() {
		<-s.done
	}
}

// size is how many bytes are kept. It and what follows is for who has waited.
func (o *output) size() int {
	n := 0
	for _, s := range o.all() {
		n += s.held
	}
	return n
}

// passed is how many bytes the client gets of what the process wrote.
func (o *output) passed() int {
	n := int64(0)
	for _, s := range o.all() {
		n += o.p.cap - s.left
	}
	return int(n)
}

// release forgets what was kept.
func (o *output) release() {
	o.p.c.s.release(o.size())
	for _, s := range o.all() {
		s.kept, s.held = nil, 0
	}
}

// stream returns what became of a stream, by its place; one that there was not is empty.
func (o *output) stream(n int) *stream {
	if all := o.all(); n < len(all) {
		return all[n]
	}
	return &stream{}
}
