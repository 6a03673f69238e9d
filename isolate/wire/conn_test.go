package wire

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// connected returns both ends of a connection, which the test closes.
func connected(t testing.TB) (a, b *Conn) {
	t.Helper()
	a, file, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	b, err = NewConn(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	return a, b
}

// TestConn: messages up to the maximum arrive with their descriptors, which are close-on-exec; then io.EOF.
func TestConn(t *testing.T) {
	sandboxtest.Leaks(t)
	a, b := connected(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	for _, message := range [][]byte{{1}, bytes.Repeat([]byte{2}, MaxMessage)} {
		if err := a.Send(message, write, read); err != nil {
			t.Fatal(err)
		}
		got, files, err := b.Receive()
		if err != nil || !bytes.Equal(got, message) || len(files) != 2 {
			t.Fatalf("%d bytes and %d descriptors: %v", len(got), len(files), err)
		}
		for _, f := range files {
			if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("descriptor flags %#x, %v: a program started meanwhile would get it", flags, err)
			}
		}
		if _, err := files[0].Write([]byte("x")); err != nil {
			t.Error(err)
		}
		CloseAll(files)
	}
	write.Close()
	if sent, err := io.ReadAll(read); string(sent) != "xx" || err != nil {
		t.Errorf("through the passed pipe: %q, %v", sent, err)
	}
	if cred, err := b.Peer(); err != nil || int(cred.Uid) != os.Getuid() || int(cred.Pid) != os.Getpid() {
		t.Errorf("peer %+v, %v", cred, err)
	}
	a.Close()
	if _, _, err := b.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// TestConnRefusesOversized: a message or descriptors above the maximum are malformed, and the descriptors are closed.
func TestConnRefusesOversized(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	many := make([]*os.File, 2*MaxDescriptors)
	for i := range many {
		many[i] = null
	}
	for _, tt := range []struct {
		name    string
		message []byte
		files   []*os.File
	}{
		{"a long message", make([]byte, MaxMessage+1), nil},
		{"a long message with a descriptor", make([]byte, MaxMessage+1), many[:1]},
		{"many descriptors", []byte{1}, many},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sandboxtest.Leaks(t)
			a, b := connected(t)
			if err := a.Send(tt.message, tt.files...); err != nil {
				t.Fatal(err)
			}
			if _, files, err := b.Receive(); !errors.Is(err, ErrMalformed) || files != nil {
				t.Errorf("%v, %v", files, err)
			}
		})
	}
}

// TestConnDeadline: Receive fails after its deadline, and works again without one.
func TestConnDeadline(t *testing.T) {
	a, b := connected(t)
	a.SetDeadline(time.Now().Add(-time.Second))
	if _, _, err := a.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
	a.SetDeadline(time.Time{})
	if err := b.Send([]byte{1}); err != nil {
		t.Error(err)
	}
	if got, _, err := a.Receive(); err != nil || len(got) != 1 {
		t.Errorf("%x, %v", got, err)
	}
}

// TestPrompt: with Prompt, Receive waits on its thread for a message that comes within that time. It receives later ones as well, and has
// a deadline.
func TestPrompt(t *testing.T) {
	a, b := connected(t)
	soon := func() (some bool) {
		if err := a.raw.Control(func(fd uintptr) { some = a.receiveSoon(fd) }); err != nil {
			t.Error(err)
		}
		return some
	}
	send := func() {
		if err := b.Send([]byte{1}); err != nil {
			t.Error(err)
		}
	}
	a.Prompt = time.Nanosecond
	if soon() {
		t.Error("a message that nobody sent")
	}
	go func() {
		time.Sleep(10 * time.Millisecond)
		send()
	}()
	if got, _, err := a.Receive(); err != nil || len(got) != 1 {
		t.Errorf("a late message: %x, %v", got, err)
	}
	a.SetDeadline(time.Now().Add(-time.Second))
	if _, _, err := a.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	a.SetDeadline(time.Time{})
	a.Prompt = time.Hour
	go func() {
		time.Sleep(10 * time.Millisecond)
		send()
	}()
	for !soon() { // a signal of the runtime can end the wait early
	}
	send()
	if got, _, err := a.Receive(); err != nil || len(got) != 1 {
		t.Errorf("a message that is there: %x, %v", got, err)
	}
}

// TestPairForLimit: a message longer than the limit is malformed, and its descriptors are closed; the next message
// arrives.
func TestPairForLimit(t *testing.T) {
	sandboxtest.Leaks(t)
	const most = 64
	a, file, err := PairFor(most)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := NewConn(file)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, size := range []int{most + 1, most} {
		if err := b.Send(make([]byte, size), null); err != nil {
			t.Fatal(err)
		}
		got, files, err := a.Receive()
		if size > most {
			if !errors.Is(err, ErrMalformed) || files != nil {
				t.Errorf("%d bytes: %v, %v", size, files, err)
			}
			continue
		}
		if err != nil || len(got) != size || len(files) != 1 {
			t.Errorf("%d bytes: %d and %d descriptors, %v", size, len(got), len(files), err)
		}
		CloseAll(files)
	}
}

// TestEnded: the end is noticed without receiving, and only once all messages have been received.
func TestEnded(t *testing.T) {
	a, b := connected(t)
	if a.Ended() || b.Ended() {
		t.Error("ended before the other side closed")
	}
	if err := b.Send([]byte{1}); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if a.Ended() {
		t.Error("ended with a message in the queue")
	}
	if got, _, err := a.Receive(); err != nil || !bytes.Equal(got, []byte{1}) {
		t.Errorf("%x, %v", got, err)
	}
	if !a.Ended() || !b.Ended() {
		t.Errorf("not ended: %t on this side, %t on the closing side", !a.Ended(), !b.Ended())
	}
}

// TestSendTimesOut: a Send to a peer that does not read fails after Patience, each time again.
func TestSendTimesOut(t *testing.T) {
	a, b := connected(t)
	a.Patience = time.Millisecond
	fill := func() int {
		for n := 0; ; n++ {
			if err := a.Send(make([]byte, MaxMessage)); err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal(err)
				}
				return n
			}
		}
	}
	if first, again := fill(), fill(); first == 0 || again != 0 {
		t.Errorf("%d messages were sent, then %d more", first, again)
	}
	if _, _, err := b.Receive(); err != nil {
		t.Fatal(err)
	}
	if n := fill(); n == 0 {
		t.Error("no message could be sent after one was received")
	}
}

// TestNewConnRefuses: a file that is not a SOCK_SEQPACKET socket is refused and closed.
func TestNewConnRefuses(t *testing.T) {
	sandboxtest.Leaks(t)
	for name, open := range map[string]func() (*os.File, error){
		"a file":   func() (*os.File, error) { return os.Open(os.DevNull) },
		"a socket": tcpSocket,
		"closed": func() (*os.File, error) {
			f, err := os.OpenFile(filepath.Join(t.TempDir(), "x"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
			f.Close()
			return f, err
		},
	} {
		f, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if c, err := NewConn(f); err == nil {
			c.Close()
			t.Errorf("%s was accepted", name)
		}
	}
}

func tcpSocket() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	return os.NewFile(uintptr(fd), "tcp"), err
}
