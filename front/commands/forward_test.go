package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
)

// TestParseMappings checks which arguments are ports, and which are refused.
func TestParseMappings(t *testing.T) {
	for arg, want := range map[string]mapping{
		"8000": {8000, 8000, false}, "8000:8080": {8000, 8080, true}, "8000:0": {8000, 0, false}, "65535:1": {65535, 1, true},
	} {
		if got, err := parseMappings([]string{"dev", arg}); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: %+v, %v", arg, got, err)
		}
	}
	many := append([]string{"dev"}, strings.Split(strings.Repeat("80 ", maxPorts+1), " ")[:maxPorts+1]...)
	for _, args := range [][]string{
		{},
		{""},
		{"dev"},
		{"dev", ""},
		{"dev", "0"},
		{"dev", "65536"},
		{"dev", "-1"},
		{"dev", "80:"},
		{"dev", ":80"},
		{"dev", "80:1:2"},
		{"dev", "80:65536"},
		{"dev", "+80"},
		{"dev", "8 0"},
		many,
	} {
		if got, err := parseMappings(args); err == nil {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

// TestListen: the same port is taken on both loopback addresses. If one of them is in use at either, another port is taken, unless the
// command line names it.
func TestListen(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		busy, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer busy.Close()
		port := uint16(busy.Addr().(*net.TCPAddr).Port)
		if _, err := listenFor(mapping{80, port, true}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("port %d of the host is in use", port)) {
			t.Errorf("%s: %v", at, err)
		}
		list, err := listenFor(mapping{port, port, false})
		if err != nil || len(list) != 2 || list[0].Addr().(*net.TCPAddr).Port != list[1].Addr().(*net.TCPAddr).Port {
			t.Fatalf("%s: %v, %v", at, list, err)
		}
		for _, l := range list {
			if a := l.Addr().(*net.TCPAddr); !a.IP.IsLoopback() || a.Port == int(port) {
				t.Errorf("%s: listens at %s", at, a)
			}
			l.Close()
		}
	}
}

// A fakeSession is a supervisor with one session, whose ports are those of the host.
type fakeSession struct {
	job.Sessions
	mu      sync.Mutex
	ended   bool  // guarded by mu
	refusal error // guarded by mu
}

func (f *fakeSession) ListSessions(context.Context) ([]job.Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return []job.Session{{ID: "0f", Kept: f.ended}}, nil
}

func (f *fakeSession) Connect(ctx context.Context, _ string, port uint16) (*os.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refusal != nil {
		return nil, f.refusal
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, job.NobodyListens(port)
	}
	defer c.Close()
	return c.(*net.TCPConn).File()
}

// forwarded starts a forwarder to a port, and returns the address that stands for it.
func forwarded(t *testing.T, f *fakeSession, port int) (address string, ended <-chan error) {
	t.Helper()
	w := &forwarder{session: job.Session{ID: "0f"}, ports: f, sessions: f, check: time.Millisecond, say: func(string) {}}
	if err := w.listen([]mapping{{port: uint16(port)}}, io.Discard); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.serve(ctx) }()
	t.Cleanup(stop)
	return w.listeners[0].Addr().String(), done
}

// TestHalfClose: the end of what one side sends is passed on, and the other direction continues.
func TestHalfClose(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address, _ := forwarded(t, &fakeSession{}, l.Addr().(*net.TCPAddr).Port)
	client, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	exchange := func(from, to net.Conn, text string) {
		t.Helper()
		if _, err := io.WriteString(from, text); err != nil {
			t.Fatal(err)
		}
		if err := from.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(to); err != nil || string(b) != text {
			t.Errorf("%q, %v", b, err)
		}
	}
	exchange(client, server, "question")
	exchange(server, client, "answer")
}

// TestRefusals: a connection is reset if nobody listens. If the session has ended, and if the supervisor has, the command ends.
func TestRefusals(t *testing.T) {
	f := &fakeSession{}
	address, ended := forwarded(t, f, 1) // nobody listens at port 1
	hear := func() error {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = io.ReadAll(c)
		return err
	}
	if err := hear(); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("nobody listens: %v", err)
	}
	f.mu.Lock()
	f.refusal = &job.Refusal{Step: "session", Message: "no session"}
	f.mu.Unlock()
	_ = hear()
	if err := <-ended; err != nil {
		t.Errorf("the session has ended: %v", err)
	}
	f.refusal = fmt.Errorf("%w: gone", job.ErrUnavailable)
	address, ended = forwarded(t, f, 1)
	_ = hear()
	if err := <-ended; !errors.Is(err, job.ErrUnavailable) {
		t.Errorf("the supervisor has ended: %v", err)
	}
	f.refusal = nil
	_, ended = forwarded(t, f, 1)
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	if err := <-ended; err != nil {
		t.Errorf("the session is no longer listed: %v", err)
	}
}
