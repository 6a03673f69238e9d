package gate

import (
	"errors"
	"net"
	"testing"
	"time"

	"corral/internal/sandboxtest"
)

// TestLimit: one more than there may be takes the place of the oldest that nobody knows, and waits when all are known.
func TestLimit(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	limited := Limit(l, 2)
	accept := func() (client, served net.Conn) {
		t.Helper()
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		if served, err = limited.Accept(); err != nil {
			t.Fatal(err)
		}
		return client, served
	}
	_, friend := accept()
	Admit(WithConn(t.Context(), friend))
	gone, evicted := accept()
	_, stays := accept()
	_ = gone.SetReadDeadline(time.Now().Add(sandboxtest.Slow(20 * time.Second)))
	if _, err := gone.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("the oldest is still there: %v", err)
	}
	_ = evicted.Close() // once more makes no more room
	Admit(WithConn(t.Context(), stays))

	waiting, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = waiting.Close() }()
	third := make(chan error, 1)
	accepting := func() {
		_, err := limited.Accept()
		third <- err
	}
	go accepting()
	select {
	case err := <-third:
		t.Errorf("three connections, and two are allowed: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	_, _ = friend.Close(), friend.Close()
	if err := <-third; err != nil {
		t.Errorf("%v", err)
	}
	go accepting()
	_ = limited.Close()
	if err := <-third; err == nil {
		t.Error("a closed listener accepts")
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}
