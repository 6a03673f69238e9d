package meter

import (
	"errors"
	"fmt"
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
	each, err := openBytes("/proc/self", fmt.Sprint(one.Fd()))
	if err != nil || each != directoryBytes && each < layeredBytes {
		t.Fatalf("a directory: %d bytes, %v", each, err)
	}
	with := []*os.File{one, open(dir, os.O_RDONLY), open(dir, unix.O_PATH), open(dir+"/file", os.O_RDWR|os.O_CREATE), one, receiver}
	var pids []int
	for range 3 {
		cmd := exec.Command("sleep", "1000")
		cmd.ExtraFiles = with
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = errors.Join(cmd.Process.Kill(), exitError(cmd.Wait())) }()
		pids = append(pids, cmd.Process.Pid)
	}
	end := func() { t.Error("a job with few directories was ended") }
	want := 2*each + 2*queuedBytes
	if n, err := openBytesOf(fakeGroup{pids: pids}, 10, end); n != want || err != nil {
		t.Errorf("%d bytes, %v; want %d: two directories and two queued descriptors", n, err, want)
	}
	for range MaxKernelBytes / directoryBytes {
		with = append(with, open(dir, os.O_RDONLY))
	}
	cmd := exec.Command("sleep", "1000")
	cmd.ExtraFiles = with
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(cmd.Process.Kill(), exitError(cmd.Wait())) }()
	if n, err := openBytesOf(fakeGroup{pids: append(pids, cmd.Process.Pid)}, 10, end); n <= MaxKernelBytes || !errors.Is(err, errTooMuchToRead) {
		t.Errorf("%d bytes, %v; want too much", n, err)
	}
}

// TestDirectorySize: a directory that can be in more than one layer counts more than another.
func TestDirectorySize(t *testing.T) {
	for name, c := range map[string]struct {
		major, links uint32
		want         int64
	}{
		"on a device":           {8, 1, directoryBytes},
		"of one layer":          {0, 2, directoryBytes + 4096*nameFactor},
		"of two layers":         {0, 1, layeredBytes + 4096*nameFactor},
		"of one layer, removed": {0, 0, layeredBytes + 4096*nameFactor},
		"with subdirectories":   {0, 9, directoryBytes + 4096*nameFactor},
	} {
		st := unix.Statx_t{Dev_major: c.major, Nlink: c.links, Size: 4096}
		if got := directorySize(&st); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
