package client

import (
	"bytes"
	"os"
	"strings"
	"time"

	"corral/internal/redact"
	"corral/isolate/wire"
)

const (
	// maxCommand is how much of a command line is read, in bytes, and maxArguments how many of its arguments are shown: a job can have
	// 2 MiB of them, and looking for secrets takes time for each.
	maxCommand   = 2048
	maxArguments = 64
	// commandPatience is how long a list waits for one command line. A read takes microseconds, unless a thread of the job holds the lock
	// of its memory while a file system does not answer.
	commandPatience = 100 * time.Millisecond
	// maxStalled is the number of reads that have not returned, each of which keeps a thread, beyond which nothing is read.
	maxStalled = 8
)

// ListCommands is like List, with the command of each job.
func (c *Client) ListCommands() ([]wire.Entry, error) {
	return allWith(c, wire.OpCommands, func(a answer) (wire.Entry, error) {
		e, err := wire.Decode[wire.Entry](a.body)
		if err != nil || len(a.files) != 1 {
			wire.CloseAll(a.files)
			return e, err
		}
		e.Command = c.readCommand(e.Job, a.files[0])
		return e, nil
	})
}

// readCommand returns the command line of a job from its /proc/PID/cmdline, which it takes over. A read that does not return in time is
// left alone, and is the only one of its job until it does.
func (c *Client) readCommand(id string, f *os.File) string {
	if !c.beginReading(id) {
		f.Close()
		return ""
	}
	read := make(chan []byte, 1)
	go func() {
		b := make([]byte, maxCommand)
		n, _ := f.Read(b) // of a process that has ended there is nothing
		f.Close()
		c.endReading(id)
		read <- b[:max(n, 0)]
	}()
	timer := time.NewTimer(commandPatience)
	defer timer.Stop()
	select {
	case b := <-read:
		return shownCommand(b)
	case <-timer.C:
		return ""
	}
}

func (c *Client) beginReading(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stalled[id] || len(c.stalled) >= maxStalled {
		return false
	}
	c.stalled[id] = true
	return true
}

func (c *Client) endReading(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.stalled, id)
}

// shownCommand returns a command line of the kernel, arguments that end in NUL, as a shell would take them, without secrets. A process
// may have written anything there.
func shownCommand(b []byte) string {
	cut := len(b) == maxCommand
	b = bytes.TrimRight(b, "\x00")
	if len(b) == 0 {
		return ""
	}
	args := strings.Split(string(b), "\x00")
	if len(args) > maxArguments {
		args, cut = args[:maxArguments], true
	}
	s := redact.Text(commandLine(args, nil), nil)
	if cut {
		s += "…"
	}
	return s
}
