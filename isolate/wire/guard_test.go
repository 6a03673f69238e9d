package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestGuard: a guard receives each message with descriptors in place of Receive, is given its first bytes, and leaves all others to
// Receive. Its error is Receive's.
func TestGuard(t *testing.T) {
	a, b := connected(t)
	refused := errors.New("refused")
	var heads []string
	b.Guard = func(socket int, head []byte) ([]byte, []*os.File, error) {
		heads = append(heads, string(head))
		buffer, control := make([]byte, 100), make([]byte, unix.CmsgSpace(4))
		n, cn, _, _, err := unix.Recvmsg(socket, buffer, control, unix.MSG_CMSG_CLOEXEC)
		if err != nil {
			return nil, nil, err
		}
		files, err := takeRights(control[:cn])
		if string(buffer[:n]) == "hostile" {
			CloseAll(files)
			return nil, nil, refused
		}
		return buffer[:n], files, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for _, m := range []struct {
		text  string
		files []*os.File
		want  error
	}{{"plain", nil, nil}, {"with a pipe", []*os.File{w}, nil}, {"hostile", []*os.File{w}, refused}, {"plain again", nil, nil}} {
		if err := a.Send([]byte(m.text), m.files...); err != nil {
			t.Fatal(err)
		}
		got, files, err := b.Receive()
		if !errors.Is(err, m.want) || err == nil && (string(got) != m.text || len(files) != len(m.files)) {
			t.Errorf("%s: %q, %d files, %v", m.text, got, len(files), err)
		}
		CloseAll(files)
	}
	if !slices.Equal(heads, []string{"with a pipe"[:headerSize], "hostile"}) {
		t.Errorf("the guard was given %q", heads)
	}
	a.Close()
	if _, _, err := b.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// TestPoll: Poll returns a message that is there, nil if none is, and io.EOF at the end. It closes descriptors that came along.
func TestPoll(t *testing.T) {
	a, b := connected(t)
	if m, err := b.Poll(); m != nil || err != nil {
		t.Errorf("of nothing: %q, %v", m, err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := a.Send([]byte("one"), w); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if m, err := b.Poll(); string(m) != "one" || err != nil {
		t.Errorf("%q, %v", m, err)
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the pipe's other end is open: %d, %v", n, err)
	}
	a.Close()
	if _, err := b.Poll(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// TestUnread: Unread reports a message that waits without receiving it, also one without bytes; Shutdown lets nothing more come.
func TestUnread(t *testing.T) {
	a, b := connected(t)
	if b.Unread() {
		t.Error("nothing was sent")
	}
	if err := a.Send([]byte("x")); err != nil {
		t.Fatal(err)
	}
	b.Shutdown()
	for range 2 { // Unread receives nothing
		if !b.Unread() {
			t.Error("what was sent does not wait")
		}
	}
	if err := a.Send([]byte("y")); !errors.Is(err, unix.EPIPE) {
		t.Errorf("after the shutdown: %v", err)
	}
	var fd int
	if err := b.Hand(func(socket int) error { fd = socket; return unix.ENOTTY }); !errors.Is(err, unix.ENOTTY) || fd == 0 {
		t.Errorf("socket %d, %v", fd, err)
	}
}

// TestCloseRead: Receive ends as if the other side had closed, and Send goes on.
func TestCloseRead(t *testing.T) {
	a, b := connected(t)
	b.CloseRead()
	if _, _, err := b.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("error %v", err)
	}
	if err := b.Send([]byte("x")); err != nil {
		t.Error(err)
	}
	if m, _, err := a.Receive(); string(m) != "x" || err != nil {
		t.Errorf("%q, %v", m, err)
	}
}

// TestDial: who connects to a socket is known to the other side by user and groups.
func TestDial(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	if _, err := Dial(path); !errors.Is(err, unix.ENOENT) {
		t.Errorf("without a listener: %v", err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	u, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	file, err := u.File()
	u.Close()
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewConn(file)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	cred, err := b.Peer()
	if err != nil || int(cred.Uid) != os.Getuid() || int(cred.Pid) != os.Getpid() {
		t.Errorf("%+v, %v", cred, err)
	}
	mine, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	groups, err := b.PeerGroups()
	if err != nil || len(groups) != len(mine) {
		t.Errorf("groups %v, want %v: %v", groups, mine, err)
	}
}
