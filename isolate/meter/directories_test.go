package meter

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDirectoryBytes: each directory that can be read counts once, however many processes inherited it; so do queued descriptors. A
// descriptor that only names a directory (O_PATH) and a file do not count.
func TestDirectoryBytes(t *testing.T) {
	open := func(path string, flags int) *os.File {
		t.Helper()
		f, err := os.OpenFile(path, flags, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	dir := t.TempDir()
	one := open(dir, os.O_RDONLY)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	sender, receiver := os.NewFile(uintptr(pair[0]), "sender"), os.NewFile(uintptr(pair[1]), "receiver")
	defer sender.Close()
	defer receiver.Close()
	if err := unix.Sendmsg(pair[0], []byte("x"), unix.UnixRights(int(one.Fd()), int(one.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	each, err := openSizeOf("/proc/self", fmt.Sprint(one.Fd()))
	if err != nil || each.bytes < directoryBytes || each.layered > 0 && each.bytes < layeredBytes {
		t.Fatalf("a directory: %+v, %v", each, err)
	}
	with := []*os.File{one, open(dir, os.O_RDONLY), open(dir, unix.O_PATH), open(dir+"/file", os.O_RDWR|os.O_CREATE), one, receiver}
	var pids []int
	for range 3 {
		pids = append(pids, waitingWith(t, with))
	}
	end := func() { t.Error("a job with few directories was ended") }
	want := openSize{2*each.bytes + 2*queuedBytes, 2 * each.layered, 2, false}
	if n, err := openFilesOf(fakeGroup{pids: pids}, 10, nil, end); n != want || err != nil {
		t.Errorf("%+v, %v; want %+v: two directories and two queued descriptors", n, err, want)
	}
	for range MaxKernelBytes / directoryBytes {
		with = append(with, open(dir, os.O_RDONLY))
	}
	if n, err := openFilesOf(fakeGroup{pids: append(pids, waitingWith(t, with))}, 10, nil, end); n.bytes <= MaxKernelBytes || !errors.Is(err, errTooMuchToRead) {
		t.Errorf("%+v, %v; want too much", n, err)
	}
}

// waitingWith starts a process that inherits files and then only waits, and returns its id. The group of a real job is frozen; this one
// is not, so the process has to be past its start: there execve(2) closes descriptors, and the C library opens the directory of a locale.
func waitingWith(t *testing.T, files []*os.File) (pid int) {
	t.Helper()
	cmd := exec.Command("cat")
	cmd.ExtraFiles = files
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(cmd.Process.Kill(), exitError(cmd.Wait())) })
	if _, err := io.WriteString(in, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}
