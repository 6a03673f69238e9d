package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/pipe"
	"corral/internal/text"
	"corral/isolate/client/embed"
	"corral/job"
)

// streams copies a job's outputs to this process's outputs, or into memory.
type streams struct {
	limit int64  // bytes of each stream, -1 for no limit
	keep  bool   // collect in memory instead of writing
	first func() // called before the first output is forwarded
	// merge makes one pipe of both outputs, so that what the job writes keeps its order. noting makes the job's input the write end of a
	// pipe: what it writes there, up to maxNote bytes and one more, is in note.
	merge, noting bool

	said sync.Once

	stdout, stderr, note stream
	pipes                []*os.File // the read ends
	work                 sync.WaitGroup
}

// maxNote is the maximum size of a note in bytes: that of a path (PATH_MAX).
const maxNote = 4 << 10

type stream struct {
	kept    []byte
	total   int64
	dropped int64
	err     error // the first write error; later output is dropped
}

// open creates the job's standard streams and starts to copy them. The caller passes the returned files to the job.
func (s *streams) open(stdin bool) (stdio job.Stdio, err error) {
	err = embed.Piping.Do(func() error {
		stdio, err = s.make(stdin)
		return err
	})
	return stdio, err
}

func (s *streams) make(stdin bool) (job.Stdio, error) {
	var stdio job.Stdio
	type end struct {
		job    **os.File
		to     *os.File // nil: the bytes are kept
		stream *stream
	}
	ends := []end{{&stdio.Stdout, os.Stdout, &s.stdout}}
	if !s.merge {
		ends = append(ends, end{&stdio.Stderr, os.Stderr, &s.stderr})
	}
	if s.noting {
		ends = append(ends, end{&stdio.Stdin, nil, &s.note})
	}
	for _, e := range ends {
		read, write, err := pipe.New(pipe.Reads)
		if err != nil {
			return stdio, err
		}
		*e.job = write
		s.pipes = append(s.pipes, read)
		s.work.Add(1)
		go func() {
			defer s.work.Done()
			defer read.Close()
			pipe.Read(read, func(b []byte) { s.deliver(e.stream, b, e.to) })
		}()
	}
	if s.merge {
		again, err := unix.FcntlInt(stdio.Stdout.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return stdio, fmt.Errorf("fcntl: %w", err)
		}
		stdio.Stderr = os.NewFile(uintptr(again), "|1")
	}
	if !stdin {
		return stdio, nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return stdio, err
	}
	stdio.Stdin = read
	go func() {
		// Nothing waits for this goroutine, because a read from a terminal may never return. It ends with the process.
		_, _ = write.ReadFrom(os.Stdin)
		write.Close()
	}()
	return stdio, nil
}

// deliver takes what the job wrote. Bytes beyond the limit are dropped, so that the job never blocks on a full pipe.
func (s *streams) deliver(st *stream, b []byte, to *os.File) {
	if len(b) == 0 {
		return
	}
	s.said.Do(func() {
		if s.first != nil {
			s.first()
		}
	})
	room, limit := int64(len(b)), s.limit
	if to == nil {
		limit = maxNote + 1
	}
	if limit >= 0 {
		room = min(room, max(limit-st.total, 0))
	}
	st.total += int64(len(b))
	st.dropped += int64(len(b)) - room
	b = b[:room]
	switch {
	case len(b) == 0 || st.err != nil:
	case s.keep || to == nil:
		st.kept = append(st.kept, b...)
		if st.dropped > 0 { // a JSON text has whole characters
			whole := text.Complete(st.kept)
			st.dropped += int64(len(st.kept) - len(whole))
			st.kept = whole
		}
	default:
		_, st.err = to.Write(b) // if the reader is gone, SIGPIPE ends this process
	}
}

// finish returns when everything that an ended job wrote is delivered. It does not wait for end of file: the job may have
// passed the write ends to a process outside it, which may keep them open or write to them.
func (s *streams) finish() {
	for _, pipe := range s.pipes {
		_ = pipe.SetReadDeadline(time.Unix(1, 0)) // fails only if the pipe reached its end and is closed
	}
	s.work.Wait()
}

// abandon is finish for a job whose supervisor is gone: its processes may still take up to a second to end.
func (s *streams) abandon() {
	done := make(chan struct{})
	go func() {
		s.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Second):
		s.finish()
	}
}

func (s *streams) dropped() int64 { return s.stdout.dropped + s.stderr.dropped }

// failed returns the first error of writing output.
func (s *streams) failed() error {
	if err := s.stdout.err; err != nil {
		return fmt.Errorf("standard output: %w", errnoOf(err))
	}
	if err := s.stderr.err; err != nil {
		return fmt.Errorf("standard error: %w", errnoOf(err))
	}
	return nil
}
