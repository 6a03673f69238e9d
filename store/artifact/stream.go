package artifact

import (
	"bytes"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"corral/internal/pipe"
	"corral/internal/redact"
)

// grace is how long after a job's end its pipes may be held open by processes that are not of the job.
const grace = 50 * time.Millisecond

// A stream reads one of a job's pipes.
type stream struct {
	pipe  *os.File
	total *atomic.Int64 // bytes read
	hide  *redact.Stream
	view  *lineReader
	keep  *spool   // nil: the stream is not stored
	whole *whole   // nil: the stream is not shown completely
	shown []byte   // owned by the reading goroutine until done is closed
	ends  *margins // nil: its ends are not shown
	live  *Feed    // nil: nobody can follow it
	early ahead    // of live
	// passed is the number of bytes after redaction. Owned by the reading goroutine until done is closed.
	passed int64
	stored sealed // owned by the reading goroutine until done is closed
	failed error  // of storing; owned by the reading goroutine until done is closed
	done   chan struct{}
}

// open creates the pipe, starts reading it, and returns the job's end.
func (s *stream) open() (*os.File, error) {
	kept, job, err := pipe.New(pipe.Reads)
	if err != nil {
		return nil, err
	}
	s.pipe, s.done = kept, make(chan struct{})
	go s.read()
	return job, nil
}

func (s *stream) read() {
	defer close(s.done)
	var out, pending []byte
	pipe.Read(s.pipe, func(p []byte) {
		if len(p) == 0 {
			return
		}
		s.total.Add(int64(len(p)))
		s.whole.count(len(p))
		out = s.hide.Append(out[:0], p, false)
		pending = s.hide.Pending(pending[:0])
		s.out(out, pending)
	})
	s.out(s.hide.Append(out[:0], nil, true), nil)
	s.view.Close()
	s.pipe.Close()
	if s.keep != nil { // streams end before the job's result is known, so this delays nobody
		s.stored, s.failed = s.keep.Seal()
	}
}

// out distributes redacted output. pending is what views of the running job show after it.
func (s *stream) out(p, pending []byte) {
	s.passed += int64(len(p))
	if s.whole != nil && !s.whole.isOver() {
		s.shown = append(s.shown, p...)
	}
	s.ends.write(p, pending)
	if s.live != nil {
		s.live.Write(s.early.next(p, pending))
	}
	_, _ = s.view.Write(p) // never fails
	if s.keep != nil {
		s.keep.Write(p)
	}
}

// An ahead is what those who follow a job have seen of the text that was pending last.
type ahead []byte

// next returns what they get next: output, and what is pending after it, without what they have seen.
func (a *ahead) next(p, pending []byte) []byte {
	n := min(len(*a), len(p))
	if bytes.Equal((*a)[:n], p[:n]) {
		p, *a = p[n:], (*a)[n:]
	} else { // a secret began with it: its placeholder follows
		*a = nil
	}
	if !bytes.HasPrefix(pending, *a) {
		return p
	}
	news := slices.Concat(p, pending[len(*a):])
	*a = bytes.Clone(pending)
	return news
}

// finish waits until all writers have closed the pipe, or for at most d.
func (s *stream) finish(d time.Duration) {
	_ = s.pipe.SetReadDeadline(time.Now().Add(d)) // fails only if the pipe is already closed
	<-s.done
}
