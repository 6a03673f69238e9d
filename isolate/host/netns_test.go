package host

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/isolatetest"
	"corral/internal/test/sandboxtest"
)

// TestNetworkGone: a network namespace is gone when the last socket in it is closed, and not before.
func TestNetworkGone(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	first, second := elsewhere(t), elsewhere(t)
	a, err := MarkNetwork(first)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := MarkNetwork(first); err != nil || again != a {
		t.Errorf("the second time: %d, %v, the first time %d", again, err, a)
	}
	b, err := MarkNetwork(second)
	if err != nil || a == b {
		t.Errorf("ids %d and %d, %v", a, b, err)
	}
	if NetworkGone(a) || NetworkGone(b) {
		t.Error("a namespace with a socket is gone")
	}
	first.Close()
	isolatetest.Eventually(t, func() string {
		if !NetworkGone(a) {
			return "the namespace is not gone"
		}
		return ""
	})
	if NetworkGone(b) {
		t.Error("the other namespace is gone")
	}
}

// elsewhere returns a socket in a network namespace without a process.
func elsewhere(t *testing.T) *os.File {
	t.Helper()
	var f *os.File
	var err error
	sandboxtest.OnThread(func() {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return
		}
		var fd int
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		f = os.NewFile(uintptr(fd), "socket")
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestReadRoute: an answer that is too short is an error, and so is one without an id.
func TestReadRoute(t *testing.T) {
	answer := make([]byte, unix.SizeofNlMsghdr)
	answer[4] = newNSID
	answer = append(append(answer, 0, 0, 0, 0), attribute(attributeID, 7)...)
	if id, err := readRoute(answer); id != 7 || err != nil {
		t.Errorf("%d, %v", id, err)
	}
	for n := range answer {
		if _, err := readRoute(answer[:n]); err == nil {
			t.Errorf("%d bytes are an answer", n)
		}
	}
	answer[unix.SizeofNlMsghdr+4+2] = attributeFD
	if _, err := readRoute(answer); err == nil {
		t.Error("another attribute is an id")
	}
}
