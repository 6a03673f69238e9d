package gate

import (
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// A limited is a listener with a limit, and its clients.
type limited struct {
	*testing.T
	net.Listener
}

func limit(t *testing.T, n int) *limited {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return &limited{t, Limit(l, n)}
}

// accept returns both ends of a new connection.
func (l *limited) accept() (client, served net.Conn) {
	l.Helper()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = client.Close() })
	if served, err = l.Accept(); err != nil {
		l.Fatal(err)
	}
	return client, served
}

// known returns a connection that serves a request of principal.
func (l *limited) known(principal string) (client, served net.Conn) {
	l.Helper()
	client, served = l.accept()
	if !Admit(WithConn(l.Context(), served), principal) {
		l.Fatalf("%s is refused", principal)
	}
	return client, served
}

// gone fails the test unless the server closed a connection.
func (l *limited) gone(client net.Conn, what string) {
	l.Helper()
	_ = client.SetReadDeadline(time.Now().Add(sandboxtest.Slow(20 * time.Second)))
	if _, err := client.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		l.Errorf("%s is still there: %v", what, err)
	}
}

// stays fails the test if the server closed a connection: what the server writes must arrive.
func (l *limited) stays(client, served net.Conn, what string) {
	l.Helper()
	_, err := served.Write([]byte("x"))
	if _, read := client.Read(make([]byte, 1)); err != nil || read != nil {
		l.Errorf("%s is gone: %v, %v", what, err, read)
	}
}

// TestLimit: a connection above the limit evicts the oldest one without authentication, and waits if all are busy.
func TestLimit(t *testing.T) {
	l := limit(t, 2)
	_, friend := l.known("a")
	gone, evicted := l.accept()
	_, stays := l.accept()
	l.gone(gone, "the oldest")
	_ = evicted.Close() // closing it again frees no second slot
	Admit(WithConn(t.Context(), stays), "b")
	waiting, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = waiting.Close() }()
	third := make(chan error, 1)
	accepting := func() {
		_, err := l.Accept()
		third <- err
	}
	go accepting()
	select {
	case err := <-third:
		t.Errorf("a third connection was accepted, the limit is two: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	_, _ = friend.Close(), friend.Close()
	if err := <-third; err != nil {
		t.Errorf("%v", err)
	}
	go accepting()
	_ = l.Close()
	if err := <-third; err == nil {
		t.Error("a closed listener accepted a connection")
	}
}

// TestShare: a principal cannot use up all connections: above its share its own idle ones are evicted, and if all are busy, a
// new one is refused.
func TestShare(t *testing.T) {
	l := limit(t, 8) // 2 of a principal
	first, idle := l.known("greedy")
	Watch(idle, http.StateIdle)
	second, busy := l.known("greedy")
	third, next := l.known("greedy")
	l.gone(first, "the idle one")
	_, more := l.accept()
	if Admit(WithConn(t.Context(), more), "greedy") {
		t.Error("a connection above the share was admitted")
	}
	if !Admit(WithConn(t.Context(), busy), "greedy") || !Admit(WithConn(t.Context(), more), "other") {
		t.Error("a request on an admitted connection, or of another principal, was refused")
	}
	l.stays(second, busy, "a busy one")
	l.stays(third, next, "a busy one")
}

// TestIdle: an idle connection of the principal with the most connections is evicted for a new one, and a connection that
// becomes idle wakes Accept.
func TestIdle(t *testing.T) {
	l := limit(t, 8)
	var clients []net.Conn
	var served []net.Conn
	for _, who := range []string{"a", "b", "b", "c", "d", "d", "e", "f"} {
		client, at := l.known(who)
		clients, served = append(clients, client), append(served, at)
	}
	for _, n := range []int{0, 2, 1} {
		Watch(served[n], http.StateIdle)
	}
	l.known("g")
	l.gone(clients[2], "the one that was idle longest, of the client with the most connections")
	Watch(served[1], http.StateActive)
	l.known("h")
	l.gone(clients[0], "the only idle one")
	waiting, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = waiting.Close() }()
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	Watch(served[4], http.StateIdle)
	if err := <-accepted; err != nil {
		t.Error(err)
	}
	l.gone(clients[4], "one that became idle")
	l.stays(clients[1], served[1], "a busy one")
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}
