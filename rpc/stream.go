package rpc

import (
	"encoding/base64"
	"os"
	"sync/atomic"

	"corral/internal/jsonrpc"
	"corral/internal/pipe"
)

// A stream reads one output stream of a process, and forwards or keeps it up to the cap. The rest is read and dropped.
type stream struct {
	o     *output
	name  string
	file  *os.File
	tty   bool // file is a terminal, which is closed by screen.close
	total atomic.Int64
	done  chan struct{} // closed when the reader has returned

	// Used by the reader, and by others once done is closed.
	left          int64  // bytes that may still be forwarded or kept
	cut           bool   // output beyond the cap was dropped
	drainTimedOut bool   // end of file was not seen: a process outside the job holds the pipe open
	mute          bool   // the client opted out of output notifications, or cannot be written to
	kept          []byte // output that is not streamed
	held          int    // bytes of kept, reserved in the server's budget
	head          []byte // JSON prefix of each delta
}

func newStream(o *output, name string, file *os.File, tty bool) *stream {
	s := &stream{o: o, name: name, file: file, tty: tty, left: o.p.cap, done: make(chan struct{})}
	f := o.p.family
	s.mute = !o.p.c.wants(f.output)
	s.head = []byte(`{"method":"` + f.output + `","params":{"` + f.id + `":` + quoted(o.p.id) + `,"stream":"` + name + `","deltaBase64":"`)
	return s
}

func (s *stream) read() {
	defer close(s.done)
	s.drainTimedOut = pipe.Read(s.file, s.consume)
	if !s.tty {
		s.file.Close()
	}
}

// consume counts b and forwards or keeps as much of it as the cap allows.
func (s *stream) consume(b []byte) {
	if len(b) == 0 {
		return
	}
	s.total.Add(int64(len(b)))
	over := int64(len(b)) > s.left
	if over {
		b = b[:s.left]
	}
	s.left -= int64(len(b))
	switch {
	case s.cut: // the client was told that the cap is reached
	case s.o.p.stream:
		s.send(b, over)
	default:
		s.keep(b)
	}
	s.cut = s.cut || over
}

// send sends b to the client as a delta. It blocks while too much output waits for the client.
func (s *stream) send(b []byte, last bool) {
	if s.o.p.family == environmentFamily {
		s.o.p.emit(s.name, b)
		return
	}
	s.o.p.announce()
	if s.mute {
		return
	}
	out := s.o.p.c.out.Load()
	text := append(out.Buffer(), s.head...)
	text = base64.StdEncoding.AppendEncode(text, b)
	if last {
		text = append(text, `","capReached":true}}`...)
	} else {
		text = append(text, `","capReached":false}}`...)
	}
	if !out.PutAfter(maxDeltas, jsonrpc.Item{Text: text, Pooled: true}) {
		s.mute = true
	}
}

// keep stores b for the answer. If the server's budget is exhausted, the process is ended, since it could not be answered
// completely.
func (s *stream) keep(b []byte) {
	p := s.o.p
	if s.o.overflow.Load() {
		return
	}
	if !p.c.s.reserve(p.c.who.Principal, len(b)) {
		s.o.overflow.Store(true)
		p.cancel(errBudget)
		return
	}
	s.held += len(b)
	s.kept = append(s.kept, b...)
}
