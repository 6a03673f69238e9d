package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// TestShared: where the group of the directory may read it, that group reads the records of before and from then on. It takes no lock, and
// without that permission nobody reads them.
func TestShared(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root) // gives files to a group
	dir := filepath.Join(t.TempDir(), "audit")
	const group = 61234
	write := func() {
		t.Helper()
		l, err := Open(dir, Options{Instance: "test", MaxSize: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if err := l.Denied(Who{Instance: "test"}, job.Claim{Tool: "run"}); err != nil {
				t.Error(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	modes := func() (shared int) {
		t.Helper()
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			var st unix.Stat_t
			if err := unix.Lstat(filepath.Join(dir, e.Name()), &st); err != nil {
				t.Fatal(err)
			}
			mode, lock := st.Mode&0o777, e.Name() == LockFile || e.Name() == ScanLockFile || e.Name() == CheckpointFile
			switch {
			case mode == 0o640 && st.Gid == group && !lock:
				shared++
			case mode != 0o600:
				t.Errorf("%s has mode %o and group %d", e.Name(), mode, st.Gid)
			}
		}
		return shared
	}
	write()
	if n := modes(); n != 0 {
		t.Errorf("%d files are shared", n)
	}
	before, err := filepath.Glob(dir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, -1, group); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	write()
	all, _ := filepath.Glob(dir + "/*")
	if n := modes(); n != len(all)-3 || len(all) <= len(before) {
		t.Errorf("%d of %d files are shared, %d before", n, len(all), len(before))
	}
	r, err := OpenReaderUnlocked(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	count := 0
	for l, err := range r.Lines(0) {
		if err != nil {
			t.Fatal(err)
		}
		if x, err := l.Record(); err == nil && x.Event == Denied {
			count++
		}
	}
	if count != 40 {
		t.Errorf("%d records", count)
	}
	last, whole := r.LastLines(3000)
	some := 0
	for l, err := range last {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Record(); err != nil {
			t.Errorf("not a line: %s", l.Text)
		}
		some++
	}
	if whole || some == 0 || some >= count {
		t.Errorf("%d lines of the last 3,000 bytes, whole %v", some, whole)
	}
	if _, whole := r.LastLines(1 << 30); !whole {
		t.Error("the last GiB is not all of the log")
	}
}

// asMember runs f in a thread of another user, in one group.
func asMember(t *testing.T, group int, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine: it has another user
		for _, call := range [][4]uintptr{
			{unix.SYS_SETGROUPS, 0, 0, 0}, {unix.SYS_SETRESGID, uintptr(group), uintptr(group), uintptr(group)}, {unix.SYS_SETRESUID, 61235, 61235, 61235},
		} {
			if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
				done <- errno
				return
			}
		}
		f()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestMember: a member of the group that may read the log changes nothing of it, and holds up nobody who writes it, with whatever locks
// it can take of what it can open.
func TestMember(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	const group = 61234
	outside := sandboxtest.OpenDir(t)
	dir := filepath.Join(outside, "audit")
	if err := errors.Join(os.Mkdir(dir, 0o750), os.Chown(dir, 0, group), os.Chmod(dir, 0o750)); err != nil {
		t.Fatal(err)
	}
	o := options(t)
	o.MaxSize = 2000
	l := open(t, dir, o)
	l.patience = 50 * time.Millisecond
	for range 20 {
		finish(t, l, "job-1", decide(t, l, "job-1"))
	}
	if _, err := l.Recover(func(string) bool { return true }); err != nil { // writes the checkpoint
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	list, err := listFiles(l.root)
	if err != nil || len(list) < 2 {
		t.Fatalf("%v, %v", list, err)
	}
	first, last := in(FileName(list[0])), in(FileName(list[len(list)-1]))
	opened := func(path string, flags int) error {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
		_ = unix.Close(fd)
		return err
	}
	asMember(t, group, func() {
		for _, tt := range []struct {
			what string
			err  error
			want error
		}{
			{"read a file", opened(first, unix.O_RDONLY), nil},
			{"read the head", opened(in(HeadFile), unix.O_RDONLY), nil},
			{"read the directory", opened(dir, unix.O_RDONLY), nil},
			{"write to a file", opened(last, unix.O_WRONLY|unix.O_APPEND), unix.EACCES},
			{"write to the head", opened(in(HeadFile), unix.O_RDWR), unix.EACCES},
			{"cut a file", unix.Truncate(last, 0), unix.EACCES},
			{"open the lock", opened(in(LockFile), unix.O_RDONLY), unix.EACCES},
			{"open the lock of scans", opened(in(ScanLockFile), unix.O_RDONLY), unix.EACCES},
			{"open the checkpoint", opened(in(CheckpointFile), unix.O_RDONLY), unix.EACCES},
			{"make the next file", opened(in(FileName(1<<40)), unix.O_CREAT|unix.O_WRONLY), unix.EACCES},
			{"plant a link", unix.Symlink("/etc/passwd", in(CheckpointFile+".new")), unix.EACCES},
			{"remove a file", unix.Unlink(first), unix.EACCES},
			{"replace the head", unix.Rename(first, in(HeadFile)), unix.EACCES},
			{"move the directory", unix.Rename(dir, filepath.Join(outside, "elsewhere")), unix.EACCES},
			{"change permissions", unix.Chmod(first, 0o666), unix.EPERM},
			{"change times", unix.UtimesNano(first, []unix.Timespec{{}, {}}), unix.EPERM},
		} {
			if !errors.Is(tt.err, tt.want) {
				t.Errorf("%s: %v, want %v", tt.what, tt.err, tt.want)
			}
		}
		for _, path := range []string{dir, first, last, in(HeadFile)} {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Error(err)
				continue
			}
			t.Cleanup(func() { _ = unix.Close(fd) })
			if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
				t.Errorf("the lock of %s: %v", path, err)
			}
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); err == nil {
				t.Errorf("a lease of %s", path)
			}
			if err := unix.Fallocate(fd, 0, 0, 1<<30); err == nil {
				t.Errorf("space of %s", path)
			}
			if again, err := unix.Open(fmt.Sprintf("/proc/thread-self/fd/%d", fd), unix.O_RDWR, 0); err == nil {
				t.Errorf("%s is open for writing", path)
				_ = unix.Close(again)
			}
		}
	})
	for range 20 { // with all these locks held, in several files
		finish(t, l, "job-2", decide(t, l, "job-2"))
	}
	if n, err := l.Recover(func(string) bool { return true }); n != 0 || err != nil {
		t.Error(n, err)
	}
	if r := verify(t, dir); !r.OK() || r.Open != 0 {
		t.Errorf("%+v", r)
	}
	asMember(t, group+1, func() {
		if err := opened(first, unix.O_RDONLY); !errors.Is(err, unix.EACCES) {
			t.Errorf("another group: %v", err)
		}
	})
}
