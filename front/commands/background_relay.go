package commands

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"corral/internal/pipe"
)

// A relays are the output streams of a job of root: the supervisor accepts only pipes that root itself created, and the output is
// stored by the user that the keeper became. nil are those of other users, who need none.
type relays []*relay

// A relay is one pipe from the job.
type relay struct {
	read, write *os.File
	work        sync.WaitGroup
}

// newRelays creates the pipes of standard output and standard error.
func newRelays() (relays, error) {
	var list relays
	for range 2 {
		read, write, err := pipe.New(pipe.Reads)
		if err != nil {
			return nil, errors.Join(err, list.close())
		}
		list = append(list, &relay{read: read, write: write})
	}
	return list, nil
}

func (r relays) close() (err error) {
	for _, one := range r {
		err = errors.Join(err, one.read.Close(), one.write.Close())
	}
	return err
}

// to begins to copy to the given files, which it takes over, and returns the job's ends of the pipes.
func (r relays) to(stdout, stderr *os.File) (jobStdout, jobStderr *os.File) {
	for n, to := range []*os.File{stdout, stderr} {
		r[n].work.Go(func() {
			defer to.Close()
			defer r[n].read.Close()
			_, _ = io.Copy(to, r[n].read) // the store reads to the end
		})
	}
	return r[0].write, r[1].write
}

// drainTime is how long the end of a stream is waited for when the job has ended: all that it wrote is in the pipe, but it may have
// passed the pipe to a process outside.
const drainTime = time.Second

// wait returns when everything that an ended job wrote was copied.
func (r relays) wait() {
	for _, one := range r {
		_ = one.read.SetReadDeadline(time.Now().Add(drainTime))
	}
	for _, one := range r {
		one.work.Wait()
	}
}
