package isolate

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
	"corral/isolate/host"
	"corral/job"
)

// TestOOMScore: jobs are the first to be killed when the host, or what their user may have, is out of memory. They can become as likely to
// be as their jail, and no less.
func TestOOMScore(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.SysResource)
	f := sharedFront(t)
	for _, score := range []string{"0", "499", "-1000"} {
		if got := f.Sh("echo " + score + " >/proc/self/oom_score_adj; cat /proc/self/oom_score_adj"); got != "1000" {
			t.Errorf("a job that sets %s has %s", score, got)
		}
	}
	if got := f.Sh("echo 500 >/proc/self/oom_score_adj; cat /proc/self/oom_score_adj"); got != "500" {
		t.Errorf("a job that sets 500 has %s", got)
	}
}

// TestTerminalLimit: all devpts mounts of a host share about 3,000 terminals, so a job gets a part of them.
func TestTerminalLimit(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	f := sharedFront(t)
	if got := f.Sh(`perl -e 'my @all; while (@all < 100 && open(my $f, "+<", "/dev/ptmx")) { push @all, $f } print scalar @all'`); got != "64" {
		t.Errorf("a job has %s terminals", got)
	}
}

// free returns the number of users that no slot has, in all jails.
func (s *Supervisor) free() int {
	n := 0
	for _, j := range s.cells.Inspect().Jails {
		n += j.FreeUsers
	}
	return n
}

// TestSlotReleasedLate: a slot whose processes take longer to exit than the timeout is released once they have. Here
// one waits for a file that a process outside has passed to the job.
func TestSlotReleasedLate(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("python3"))
	files := sandboxtest.StartFileServer(t, owner)
	f := newFront(t, func(c *Config) { c.Slots, c.switches.Ending, c.Log = -1, 200*time.Millisecond, nil })
	f.Sh("true")
	var before int
	eventually(t, func() string {
		if before = f.s.free(); before != host.JobUIDs-1 { // the scanner has one user
			return fmt.Sprintf("%d users are free", before)
		}
		return ""
	})
	path := filepath.Join(f.Repo, "socket")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := errors.Join(os.Chown(path, owner, owner), l.SetDeadline(time.Now().Add(sandboxtest.Slow(time.Minute)))); err != nil {
		t.Fatal(err)
	}
	spec := f.Spec("python3", "-c", `import os, socket
s = socket.socket(socket.AF_UNIX)
s.connect("socket")
_, fds, _, _ = socket.recv_fds(s, 1, 1)
s.recv(1)
os.read(fds[0], 1)`)
	spec.Limits = job.Limits{Wall: time.Minute}
	l2, err := f.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	u, err := l.AcceptUnix()
	if err != nil {
		t.Fatalf("%v: %s", err, l2.Err.String())
	}
	conn, err := u.File()
	u.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	files.SendFile(t, conn, []byte("x"))
	files.Stall(t)
	if _, err := conn.WriteString("x"); err != nil {
		result, ended := l2.Wait()
		t.Fatalf("%v; the job: %+v, %v: %s", err, result, ended, l2.Err.String())
	}
	files.AwaitRequest(t)
	if err := l2.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := l2.Wait(); err == nil || strings.Contains(err.Error(), "EOF") {
		t.Errorf("a job with a process left: %v", err)
	}
	if now := f.s.free(); now != before-1 {
		t.Errorf("%d users are free while a process still has one; before: %d", now, before)
	}
	files.End()
	eventually(t, func() string {
		if now := f.s.free(); now != before {
			return fmt.Sprintf("%d users are free; before: %d", now, before)
		}
		return ""
	})
	l2.In.Close()
}
