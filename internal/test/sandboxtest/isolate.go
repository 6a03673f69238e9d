package sandboxtest

// Helpers of the tests of package isolate and the packages below it: repositories of a user, and expectations of errors.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
)

// Owner is the user who owns the repositories of tests.
const Owner = 1001

// NewRepo creates an empty repository that belongs to Owner.
func NewRepo(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "repo")
	Mkdir(t, dir, Owner)
	return dir
}

// Mkdir creates a directory that user uid owns.
func Mkdir(t testing.TB, path string, uid int) {
	t.Helper()
	mayGive(t, uid)
	if err := errors.Join(os.Mkdir(path, 0o755), os.Chmod(path, 0o755), os.Chown(path, uid, uid)); err != nil {
		t.Fatal(err)
	}
}

// mayGive skips the test unless it can create files of user uid.
func mayGive(t testing.TB, uid int) {
	t.Helper()
	if uid != os.Geteuid() {
		Require(t, Root)
	}
}

// Put writes a file with the given mode and owner.
func Put(t testing.TB, path, content string, mode os.FileMode, uid int) {
	t.Helper()
	mayGive(t, uid)
	if err := errors.Join(os.WriteFile(path, []byte(content), mode), os.Chmod(path, mode), os.Chown(path, uid, uid)); err != nil {
		t.Fatal(err)
	}
}

// Exists reports whether there is a file at path, without following a link.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Settled waits until what returns "". It polls, because the kernel sends no event when the last mount or cgroup
// is gone.
func Settled(t testing.TB, what func() string) {
	t.Helper()
	var text string
	patience := Slow(30 * time.Second)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if text = what(); text == "" {
			return
		}
	}
	t.Errorf("after %v: %s", patience, text)
}

// RefusedAt checks that err is a refusal at a step, with this error number unless it is 0.
func RefusedAt(t testing.TB, what string, err error, step string, errno unix.Errno) {
	t.Helper()
	var r *job.Refusal
	if !errors.As(err, &r) || r.Step != step || errno != 0 && r.Errno != int(errno) {
		t.Errorf("%s: %#v, want a refusal at %q with errno %d (%v)", what, err, step, int(errno), errno)
	}
}

// Opened returns an O_PATH descriptor, as front-ends pass it.
func Opened(t testing.TB, path string) *os.File {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { f.Close() })
	return f
}

// OpenDescriptors returns the number of open descriptors of this process.
func OpenDescriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Waits reports whether a thread of this process waits where no signal reaches it, for longer than a disk takes.
func Waits(t testing.TB) bool {
	t.Helper()
	for range 100 {
		if !uninterruptible(t) {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}

func uninterruptible(t testing.TB) bool {
	t.Helper()
	list, err := filepath.Glob("/proc/self/task/*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range list {
		b, _ := os.ReadFile(file) // empty if the thread has exited
		if _, state, _ := strings.Cut(string(b), ") "); strings.HasPrefix(state, "D") {
			return true
		}
	}
	return false
}

// Give changes the owner and group of a file or directory.
func Give(t testing.TB, path string, uid, gid int) {
	t.Helper()
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
}

// InMountNamespace calls f in a new mount namespace, which lasts until the end of the test.
func InMountNamespace(t *testing.T, f func() error) {
	t.Helper()
	var err error
	OnThread(func() {
		err = errors.Join(unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		var namespace *os.File
		if err == nil {
			namespace, err = os.Open("/proc/thread-self/ns/mnt")
		}
		if err == nil {
			t.Cleanup(func() { namespace.Close() })
			err = f()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Handle opens a path with O_PATH, as clients do that pass it.
func Handle(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	return os.NewFile(uintptr(fd), path), err
}

// Python begins the programs below.
const Python = "import ctypes, mmap, os, socket, sys\n"

// Parts of Python programs, after Python: what threads do whose descriptors are not those in /proc/PID/fd.
var (
	// EndLeader ends the first thread of the process, and the others go on.
	EndLeader = fmt.Sprintf(`
def in_thread(f):
    threading.Thread(target=f).start()
    ctypes.CDLL(None).syscall(%d, 0)
def leader_ended():
    while ") Z" not in open("/proc/%%d/stat" %% os.getpid()).read(): time.sleep(0.001)
`, unix.SYS_EXIT)

	// OwnTable gives the calling thread a descriptor table of its own, as clone(2) without CLONE_FILES does, and leaves the standard streams.
	OwnTable = fmt.Sprintf(`
def own_table():
    if ctypes.CDLL(None).syscall(%d, 1000, 1000, 2): raise OSError("close_range")
`, unix.SYS_CLOSE_RANGE)
)
