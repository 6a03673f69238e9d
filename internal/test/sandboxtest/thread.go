package sandboxtest

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// OnThread calls f on a thread of its own, which ends with it: what f changes of its thread (user ids, capabilities,
// namespaces) is nobody else's. It waits for f.
func OnThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		// The first thread outlives its goroutine, and /proc/self speaks of it. It is held until another has been found.
		OnThread(f)
		runtime.UnlockOSThread()
	}()
	<-done
}

// AsNobody calls f without root's right to files: a change of the file system uid takes it from the thread, see
// setfsuid(2). dir, and its parent for passing through, are given to the user that f is. Not root: f is called as it is.
func AsNobody(t *testing.T, dir string, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	const nobody = 65534
	for _, err := range []error{os.Chown(dir, nobody, nobody), os.Chmod(filepath.Dir(dir), 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	OnThread(func() {
		if _, err := unix.SetfsuidRetUid(nobody); err != nil {
			t.Error(err)
			return
		}
		f()
	})
}
