package sandboxtest

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// OnThread calls f on a new thread and waits for it. The thread ends with f, so changes that f makes to it (user ids,
// capabilities, namespaces) affect nothing else.
func OnThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return
		}
		// The process's first thread outlives its goroutine, and /proc/self shows it. Hold it until f has run on another.
		OnThread(f)
		runtime.UnlockOSThread()
	}()
	<-done
}

// AsNobody calls f without root's rights to files, which setfsuid(2) takes from its thread. dir is given to the user that
// f runs as, and its parent is made searchable. If the caller is not root, f is called unchanged.
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

// DialAs connects to an IP address and port by TCP as another user of this machine. Unless that is the caller, root must call it.
func DialAs(t *testing.T, uid int, address string) (conn net.Conn) {
	t.Helper()
	var err error
	OnThread(func() {
		if _, err = unix.SetfsuidRetUid(uid); err == nil {
			conn, err = net.Dial("tcp", address)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
