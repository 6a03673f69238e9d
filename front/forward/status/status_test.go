package status

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRunning: a forwarder runs as long as a process holds the file, and not after one was killed, which has written nothing about its end.
// A user who may only read the file cannot make it look as if one ran.
func TestRunning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status")
	open := func(flags int) *os.File {
		t.Helper()
		f, err := os.OpenFile(path, flags, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	runs := func(what string, want bool) {
		t.Helper()
		if s, ok := Read(path); !ok || s.Running != want || s.Seq != 7 {
			t.Errorf("%s: %+v, %v", what, s, ok)
		}
	}
	f := open(os.O_RDWR | os.O_CREATE)
	if err := errors.Join((Status{Seq: 7}).Write(f), Hold(f)); err != nil {
		t.Fatal(err)
	}
	runs("held", true)
	child, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	runs("held by a child", true)
	if err := unix.Close(child); err != nil {
		t.Fatal(err)
	}
	runs("killed", false)
	reader := open(os.O_RDONLY)
	defer reader.Close()
	if err := Hold(reader); err == nil {
		t.Error("a reader holds the file")
	}
	if err := unix.Flock(int(reader.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	runs("locked by a reader in another way", false)
	f = open(os.O_RDWR)
	defer f.Close()
	if err := errors.Join(Hold(f), (Status{Seq: 7, Ended: 1}).Write(f)); err != nil {
		t.Fatal(err)
	}
	runs("ended", false)
}
