package rpc

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"corral/internal/pipe"
	"corral/job"
)

// drainTimeout is how long after a job's end its output is still read if a process outside the job holds the pipes open.
const drainTimeout = 50 * time.Millisecond

// An output reads what a process writes. It implements job.Output.
type output struct {
	p        *process
	finished bool // used by the goroutine that runs the process

	mu       sync.Mutex
	streams  []*stream   // guarded by mu: stdout and stderr, or the terminal's one; empty until created
	overflow atomic.Bool // the server's budget was exhausted
}

func newOutput(p *process) *output { return &output{p: p} }

var _ job.Output = (*output)(nil)

// Handle implements job.Output. It returns "": output is not stored.
func (o *output) Handle() string { return "" }

// stdin is the hook for streamed input.
func (o *output) stdin() (*os.File, error) { return o.p.input.pipe() }

// Streams implements job.Output.
func (o *output) Streams() (stdout, stderr *os.File, err error) {
	var ends [2]*os.File
	for n, name := range [...]string{"stdout", "stderr"} {
		kept, job, err := pipe.New(pipe.Reads)
		if err != nil {
			if n > 0 {
				ends[0].Close()
			}
			return nil, nil, err
		}
		ends[n] = job
		o.begin(name, kept, false)
	}
	return ends[0], ends[1], nil
}

// terminal is the hook for a terminal.
func (o *output) terminal(master *os.File) {
	file, err := o.p.screen.open(master)
	if err != nil {
		o.p.cancel(err)
		return
	}
	o.p.announce()
	name := "stdout"
	if o.p.family == environmentFamily {
		name = "pty"
	}
	o.begin(name, file, true)
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

// Finish implements job.Output. It does not wait for the client to read the rest; wait does.
func (o *output) Finish(*job.Record) {
	o.finished = true
	o.p.announce()
	o.stop(drainTimeout)
}

// Discard implements job.Output.
func (o *output) Discard() {
	if !o.finished {
		o.stop(0)
	}
}

func (o *output) stop(d time.Duration) {
	for _, s := range o.all() {
		_ = s.file.SetReadDeadline(time.Now().Add(d)) // fails only if the file is closed
	}
}

// wait blocks until all output was queued for the client or kept. size, passed, release and stream may be called only
// after that.
func (o *output) wait() {
	for _, s := range o.all() {
		<-s.done
	}
}

// size returns the number of kept bytes.
func (o *output) size() int {
	n := 0
	for _, s := range o.all() {
		n += s.held
	}
	return n
}

// passed returns how many bytes of output the client gets.
func (o *output) passed() int {
	n := int64(0)
	for _, s := range o.all() {
		n += o.p.cap - s.left
	}
	return int(n)
}

// release drops the kept output and returns its bytes to the budget.
func (o *output) release() {
	o.p.c.s.release(o.p.c.who.Principal, o.size())
	for _, s := range o.all() {
		s.kept, s.held = nil, 0
	}
}

// stream returns stream n, or an empty one if the process had none.
func (o *output) stream(n int) *stream {
	if all := o.all(); n < len(all) {
		return all[n]
	}
	return &stream{}
}
