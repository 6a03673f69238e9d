package audit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
)

// beHolder locks a file and stops itself. It must be killed.
func beHolder(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	for {
		if err := unix.Kill(os.Getpid(), unix.SIGSTOP); err != nil {
			return err
		}
	}
}

// startHolder starts a process that locks path and is stopped. It is killed after a minute at the latest, so that
// code that waits for it forever makes the test fail rather than hang.
func startHolder(t *testing.T, lock string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "AUDIT_TEST_HOLDER="+lock)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		timer.Stop()
		release(cmd)
	})
	var status unix.WaitStatus
	if _, err := unix.Wait4(cmd.Process.Pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatal(status, err)
	}
	return cmd
}

func release(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// TestStoppedHolder: a process stopped while it holds the lock does not block others forever. The error names it;
// jobs that end meanwhile are recorded once the lock is free, before any other record.
func TestStoppedHolder(t *testing.T) {
	dir := newDir(t)
	l := open(t, dir, options(t))
	l.patience = 50 * time.Millisecond
	of := [2]uint64{decide(t, l, "job-1"), decide(t, l, "job-2")}
	holder := startHolder(t, filepath.Join(dir, "lock"))
	var work sync.WaitGroup
	for range 20 {
		work.Go(func() {
			_, err := l.Decided(&Decision{Who: Who{Instance: "test", Job: "job-3"}})
			wantHeld(t, err, holder.Process.Pid)
			wantHeld(t, l.Denied(Who{Instance: "test"}, job.Claim{}), holder.Process.Pid)
		})
	}
	for i, id := range []string{"job-1", "job-2"} {
		work.Go(func() {
			wantHeld(t, l.Finished(&Ending{Who: Who{Instance: "test", Job: id}, Of: of[i], Result: job.Result{Status: job.Success}}), holder.Process.Pid)
		})
	}
	if err := l.syncFile(); err != nil { // must not wait for them
		t.Error(err)
	}
	work.Wait()
	_, err := openReaderWithin(dir, l.patience)
	wantHeld(t, err, holder.Process.Pid)

	release(holder)
	l.patience = lockPatience
	last := decide(t, l, "job-4")
	var got []Event
	for _, r := range records(t, dir) {
		got = append(got, r.Event)
	}
	if want := fmt.Sprint([]Event{Decided, Decided, Finished, Finished, Decided}); fmt.Sprint(got) != want {
		t.Errorf("%v, want %v", got, want)
	}
	finish(t, l, "job-4", last)
	if r := sound(t, dir, 6); r.Open != 0 {
		t.Errorf("%+v", r)
	}
}

func wantHeld(t *testing.T, err error, pid int) {
	t.Helper()
	want := fmt.Sprintf("audit: process %d, which is stopped, keeps the audit log locked\nhint: let it continue (kill -CONT %[1]d), or end it", pid)
	if !errors.Is(err, unix.EAGAIN) || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// TestCloseFlushesPending: Close writes pending ends, and returns an error if it still cannot.
func TestCloseFlushesPending(t *testing.T) {
	for _, free := range []bool{true, false} {
		dir := newDir(t)
		l := open(t, dir, options(t))
		of := decide(t, l, "job-1")
		holder := startHolder(t, filepath.Join(dir, "lock"))
		l.patience = 50 * time.Millisecond
		wantHeld(t, l.Finished(&Ending{Who: Who{Instance: "test", Job: "job-1"}, Of: of}), holder.Process.Pid)
		if free {
			release(holder)
			l.patience = lockPatience
		}
		err := l.Close()
		if !free {
			wantHeldWithin(t, err, holder.Process.Pid)
			release(holder)
		} else if err != nil {
			t.Error(err)
		}
		if r := verify(t, dir); !r.OK() || (r.Open == 0) != free {
			t.Errorf("lock free %v: %+v", free, r)
		}
	}
}

func wantHeldWithin(t *testing.T, err error, pid int) {
	t.Helper()
	if !errors.Is(err, unix.EAGAIN) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", pid)) {
		t.Errorf("%v", err)
	}
}

// TestStoppedScan: a start waits for the lock of scans with a timeout.
func TestStoppedScan(t *testing.T) {
	dir := newDir(t)
	l := open(t, dir, options(t))
	holder := startHolder(t, filepath.Join(dir, "scan.lock"))
	err := l.scanning(50*time.Millisecond, func() error { return errors.New("f ran without the lock") })
	wantHeld(t, err, holder.Process.Pid)
	release(holder)
	if n, err := l.Recover(func(string) bool { return true }); n != 0 || err != nil {
		t.Error(n, err)
	}
}

// TestDecidedNotSynced: a job whose decided record may not be on disk is closed by a record, too.
func TestDecidedNotSynced(t *testing.T) {
	dir := newDir(t)
	o := options(t)
	o.Each = true
	l, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.syncer.End(); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the disk is broken")
	l.syncer = newSyncer(true, func() error { return broken })
	of, err := l.Decided(&Decision{Who: Who{Instance: "test", Job: "job-1"}})
	if of == 0 || !errors.Is(err, broken) {
		t.Fatal(of, err)
	}
	if err := l.Finished(&Ending{Who: Who{Instance: "test", Job: "job-1"}, Of: of}); !errors.Is(err, broken) {
		t.Error(err)
	}
	if seq, err := l.Decided(&Decision{Who: Who{Instance: "test", Job: "job-2"}}); seq != 0 || !errors.Is(err, broken) {
		t.Error(seq, err)
	}
	if r := sound(t, dir, 2); r.Open != 0 || len(l.pending) != 0 || len(l.running) != 0 {
		t.Errorf("%+v", r)
	}
}
