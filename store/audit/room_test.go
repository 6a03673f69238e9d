package audit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// TestFreedSpaceIsNotReliedOn: truncating the file frees the space of open jobs; no process relies on it afterwards.
func TestFreedSpaceIsNotReliedOn(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	for _, how := range []string{"torn", "other", "write"} {
		t.Run(how, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), "AUDIT_TEST_ROOM="+how+" "+t.TempDir())
			cmd.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS} // its mounts end with it
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// beShort has sixty jobs open on a small disk when the file is truncated and the disk becomes full. It must run in
// its own mount namespace.
func beShort(what string) error {
	how, top, _ := strings.Cut(what, " ")
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", top, "tmpfs", 0, "size=1400k,mode=0700"); err != nil {
		return err
	}
	dir := filepath.Join(top, "audit")
	var logs [2]*Log
	for i := range logs {
		l, err := Open(dir, Options{Instance: "test"})
		if err != nil {
			return err
		}
		logs[i] = l
	}
	s := shortage{logs[0], logs[1], filepath.Join(top, "filler"), nil}
	for range 60 {
		if err := s.decide(s.a); err != nil {
			return err
		}
	}
	if err := s.b.Denied(Who{Instance: "test"}, job.Claim{}); err != nil { // b has read what is reserved
		return err
	}
	err := map[string]func() error{
		"torn":  func() error { return s.torn(s.a, s.a) },
		"other": func() error { return s.torn(s.a, s.b) },
		"write": s.write,
	}[how]()
	if err := errors.Join(err, s.a.Close(), s.b.Close()); err != nil {
		return err
	}
	return checkFull(dir, len(s.open))
}

type shortage struct {
	a, b   *Log
	filler string
	open   []uint64 // decided by a or b
}

func (s *shortage) decide(l *Log) error {
	seq, err := l.Decided(&Decision{Who: Who{Instance: "test", Job: "job-1"}})
	if err == nil {
		s.open = append(s.open, seq)
	}
	return err
}

// finishLong records the longest possible end.
func finishLong(l *Log, of uint64) error {
	long := strings.Repeat("\x01", 1<<16)
	return l.Finished(&Ending{Who: Who{Instance: "test", Job: "job-1"}, Of: of, Refusal: &job.Refusal{Step: long, Message: long}})
}

// torn lets one Log repair a torn record, and another rely on the reserved space.
func (s *shortage) torn(repairing, relying *Log) error {
	f, err := os.OpenFile(repairing.file.Name(), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(`{"seq":42,"prev":"`)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := repairing.Denied(Who{Instance: "test"}, job.Claim{}); err != nil {
		return err
	}
	if err := fill(s.filler); err != nil {
		return err
	}
	for err == nil && len(s.open) < 5000 {
		err = s.decide(relying)
	}
	if !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("after %d jobs: %w", len(s.open), err)
	}
	for _, of := range s.open {
		if err := finishLong(s.a, of); err != nil {
			return fmt.Errorf("the end of record %d of %d: %w", of, len(s.open), err)
		}
	}
	return nil
}

// write makes a write fail within a line, and the space that this frees is taken by others. The ends of jobs are
// recorded once there is space again, and no job is decided until then.
func (s *shortage) write() error {
	signal.Ignore(unix.SIGXFSZ)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		return err
	}
	// b wrote last, and notices this failure by the head only.
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(s.b.at.Size) + 100, Max: was.Max}); err != nil {
		return err
	}
	if err := s.a.Denied(Who{Instance: "test"}, job.Claim{}); !errors.Is(err, unix.EFBIG) {
		return fmt.Errorf("denied within the limit of a file's size: %w", err)
	}
	if err := errors.Join(unix.Setrlimit(unix.RLIMIT_FSIZE, &was), fill(s.filler)); err != nil {
		return err
	}
	before := len(s.open)
	if err := s.decide(s.b); !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("a job was decided without space for its end: %w", err)
	}
	failed := 0
	for _, of := range s.open {
		if err := finishLong(s.a, of); err != nil {
			failed++
		}
	}
	if failed == 0 || len(s.a.pending) != failed {
		return fmt.Errorf("%d of %d ends not written, %d pending", failed, before, len(s.a.pending))
	}
	err := s.decide(s.a)
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "records could not be written") || !strings.Contains(err.Error(), "\nhint: ") {
		return fmt.Errorf("a job was decided while ends are pending: %w", err)
	}
	if err := os.Remove(s.filler); err != nil {
		return err
	}
	if err := s.decide(s.a); err != nil {
		return err
	}
	return finishLong(s.a, s.open[before])
}
