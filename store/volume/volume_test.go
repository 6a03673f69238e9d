package volume

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

func TestMain(m *testing.M) { os.Exit(sandboxtest.PrivateMounts(m)) }

// open opens a volume of a directory.
func open(t *testing.T, dir *os.File, size Size) *os.File {
	t.Helper()
	root, err := Open(dir, "v", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func directory(t *testing.T) *os.File {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root)
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return dir
}

// write makes a file with content in a directory.
func write(root *os.File, name, content string) error {
	fd, err := unix.Openat(int(root.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

func read(root *os.File, name string) string {
	fd, err := unix.Openat(int(root.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err.Error()
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	b := make([]byte, 100)
	n, _ := f.Read(b)
	return string(b[:n])
}

var small = Size{Bytes: MinBytes, Inodes: 1000}

// TestBounds: what is written to a volume takes no more of the host than its size, in bytes and in files, whatever the process wants.
func TestBounds(t *testing.T) {
	dir := directory(t)
	root := open(t, dir, small)
	for n := 0; ; n++ {
		err := write(root, fmt.Sprint(n), "")
		if errors.Is(err, unix.ENOSPC) && n > 900 {
			break
		}
		if err != nil || n > 1000 {
			t.Fatalf("%d files: %v", n, err)
		}
	}
	if err := write(root, "0", strings.Repeat("x", MinBytes)); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a file of the size of the volume: %v", err)
	}
	if err := unix.Syncfs(int(root.Fd())); err != nil {
		t.Error(err)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), "v", &st, 0); err != nil || st.Size != MinBytes+tail || st.Blocks*512 > MinBytes {
		t.Errorf("%d bytes, %d on the disk, %v", st.Size, st.Blocks*512, err)
	}
	if err := unix.Unlinkat(int(root.Fd()), "0", 0); err != nil {
		t.Error(err)
	}
}

// TestStays: a process that opens a volume later, or at the same time, finds what is in it. No mount, device or process is left when it
// is closed.
func TestStays(t *testing.T) {
	sandboxtest.Leaks(t)
	dir := directory(t)
	root := open(t, dir, small)
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(before), "/dev/loop") {
		t.Error("it is mounted at a path")
	}
	if err := write(root, "a", "kept"); err != nil {
		t.Fatal(err)
	}
	again, err := OpenPresent(dir, "v")
	if err != nil {
		t.Fatal(err)
	}
	if got := read(again, "a"); got != "kept" {
		t.Errorf("opened twice: %q", got)
	}
	root.Close()
	if err := write(again, "b", "too"); err != nil {
		t.Errorf("after the other one is closed: %v", err)
	}
	again.Close()
	for range 3 {
		root := open(t, dir, small)
		if a, b := read(root, "a"), read(root, "b"); a != "kept" || b != "too" {
			t.Errorf("opened again: %q, %q", a, b)
		}
		root.Close()
	}
}

// TestCrashed: a volume that was not unmounted is made again, and is not opened as it is.
func TestCrashed(t *testing.T) {
	dir := directory(t)
	root := open(t, dir, small)
	if err := write(root, "a", "lost"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Syncfs(int(root.Fd())); err != nil {
		t.Fatal(err)
	}
	crashed, err := os.ReadFile(filepath.Join(dir.Name(), "v")) // as the disk has it when the machine stops now
	if err != nil {
		t.Fatal(err)
	}
	root.Close()
	if err := os.WriteFile(filepath.Join(dir.Name(), "w"), crashed, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenPresent(dir, "w"); !errors.Is(err, ErrDamaged) {
		t.Errorf("%v, want %v", err, ErrDamaged)
	}
	again, err := Open(dir, "w", small)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := read(again, "a"); !strings.Contains(got, "no such file") {
		t.Errorf("%q", got)
	}
}

// TestRefused: what is not a volume of root's is not mounted.
func TestRefused(t *testing.T) {
	dir := directory(t)
	at := func(name string) string { return filepath.Join(dir.Name(), name) }
	for name, err := range map[string]error{
		"file": os.WriteFile(at("file"), make([]byte, MinBytes), 0o600), "short": os.WriteFile(at("short"), nil, 0o600),
		"link": os.Symlink(at("file"), at("link")), "fifo": unix.Mkfifo(at("fifo"), 0o600), "other": os.WriteFile(at("other"), nil, 0o600),
		"directory": os.Mkdir(at("directory"), 0o700),
	} {
		if err == nil && name == "other" {
			err = os.Chown(at(name), 1, 1)
		}
		if err != nil {
			t.Fatal(err)
		}
		if root, err := OpenPresent(dir, name); err == nil {
			root.Close()
			t.Errorf("%s is mounted", name)
		}
	}
	root, err := Open(dir, "real", Size{MinBytes, 10})
	if err != nil {
		t.Fatal(err)
	}
	root.Close()
	for what, make := range map[string]func() error{
		"a link to a volume": func() error { return os.Symlink("real", at("to real")) },
		"of another user":    func() error { return os.Chown(at("real"), 1, 0) },
		"writable by others": func() error { return errors.Join(os.Chown(at("real"), 0, 0), os.Chmod(at("real"), 0o622)) },
	} {
		name := "real"
		if strings.HasPrefix(what, "a link") {
			name = "to real"
		}
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if root, err := OpenPresent(dir, name); err == nil {
			root.Close()
			t.Errorf("%s is mounted", what)
		}
		if err := errors.Join(os.Chown(at("real"), 0, 0), os.Chmod(at("real"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []Size{{MinBytes - 1, 10}, {MaxBytes + 1, 10}, {MinBytes, MinBytes}} {
		if root, err := Open(dir, "v", size); err == nil {
			root.Close()
			t.Errorf("a volume of %+v", size)
		}
	}
}

// header returns a block that makes a device one of LUKS for blkid(8), if it is at an offset in bytes.
func header(at uint64) string {
	b := make([]byte, blockSize)
	copy(b, "SKUL\xba\xbe")
	binary.BigEndian.PutUint16(b[6:], 2)
	binary.BigEndian.PutUint64(b[8:], 16<<10)
	copy(b[168:], "11111111-2222-3333-4444-555555555555")
	binary.BigEndian.PutUint64(b[256:], at)
	return string(b)
}

// TestSignatures: whatever is written to a volume, programs of the host that look at its device take it for an ext4.
func TestSignatures(t *testing.T) {
	dir := directory(t)
	root := open(t, dir, Size{MinBytes, 16})
	path := filepath.Join(dir.Name(), "v")
	for _, at := range []uint64{16 << 10, 512 << 10, 4 << 20} {
		if err := write(root, "a", strings.Repeat(header(at), MinBytes/blockSize)); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("fill the volume: %v", err)
		}
		if err := unix.Syncfs(int(root.Fd())); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("blkid", "-p", "-o", "value", "-s", "TYPE", path).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != "ext4" {
			t.Errorf("with headers of LUKS for %d: blkid says %q, %v", at, got, err)
		}
	}
	// RAIDs have theirs in the last 3087 sectors at most. Where a file has its blocks is ext4's choice: none can be there.
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const blocksCount = 1024 + 4 // in the superblock
	if blocks := int(binary.LittleEndian.Uint32(b[blocksCount:])); blocks*blockSize != MinBytes || len(b)-blocks*blockSize < 3087*512 {
		t.Errorf("the file system has %d blocks of a file of %d bytes", blocks, len(b))
	}
}

// TestLeavesOthers: loop devices of other files are not opened. Users can have some made, and the kernel asks the file system of the file.
func TestLeavesOthers(t *testing.T) {
	dir := directory(t)
	other, err := os.OpenFile(filepath.Join(dir.Name(), "other"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Truncate(MinBytes); err != nil {
		t.Fatal(err)
	}
	device, err := Attach(other, true)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	// What is opened at its path in this namespace is seen, and by nobody else's processes.
	if err := unix.Mount(other.Name(), device.Node(), "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(device.Node(), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, device.Node(), unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	open(t, dir, small)
	again, err := OpenPresent(dir, "v")
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if n, err := unix.Read(watch, make([]byte, 4096)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("the device of another file was opened: %d bytes of events, %v", n, err)
	}
}

// TestFormat: file systems of all sizes are made, and e2fsck finds nothing in them.
func TestFormat(t *testing.T) {
	dir := directory(t)
	for _, size := range []Size{small, {MinBytes + 12345, 64}, {1 << 30, 200_000}, {100 << 30, 50_000}, {MaxBytes, 51_024}} {
		file, err := os.CreateTemp(dir.Name(), "volume")
		if err != nil {
			t.Fatal(err)
		}
		if err := Format(file, size.Bytes, size.Inodes); err != nil {
			t.Errorf("%+v: %v", size, err)
		} else if out, err := exec.Command("e2fsck", "-f", "-n", file.Name()).CombinedOutput(); err != nil {
			t.Errorf("%+v: %v: %s", size, err, out)
		}
		file.Close()
	}
}
