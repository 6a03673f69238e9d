package transport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"corral/internal/jsonrpc"
	"corral/internal/ratelimit"
	"corral/internal/test/sandboxtest"
	"corral/rpc"
)

// part is what each connection of these tests sends of a message before it stalls.
const part = 8 << 20

// within a share: so many connections may stall with a part each. A buffer is at most twice as large as what it holds.
const stalls = maxReceivedShare / (rpc.MaxMessage + 1)

// TestWebSocketMemory checks that the connections of one principal cannot make the server keep any number of unfinished
// messages, that another principal's messages still arrive, and that the memory is available again afterwards.
func TestWebSocketMemory(t *testing.T) {
	s := newSite(t, echo)
	unfinished := masked(0x01, strings.Repeat("x", part))
	var open []net.Conn
	refused := false
	for range 3 * stalls {
		c := s.upgraded()
		if _, err := c.Write(unfinished); err != nil {
			refused = true
			break
		}
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if got := closeStatus(c); got == websocket.StatusTryAgainLater {
			refused = true
			break
		}
		open = append(open, c)
	}
	if !refused || len(open) < stalls/2 {
		t.Errorf("%d connections may send %d bytes each, refused %t; want about %d", len(open), part, refused, stalls)
	}
	say := func(token, text string) error {
		ws := s.dial(token)
		if err := ws.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			return err
		}
		_, got, err := ws.Read(t.Context())
		if err == nil && string(got) != "token:"+token+" "+text {
			return fmt.Errorf("got %.40q", got)
		}
		return err
	}
	if err := errors.Join(say("a", "small"), say("b", strings.Repeat("y", part))); err != nil {
		t.Errorf("while a client stalls: %v", err)
	}
	for _, c := range open {
		_ = c.Close()
	}
	sandboxtest.Eventually(t, 20*time.Second, "room for the client again", func() bool {
		return say("a", strings.Repeat("z", part)) == nil
	})
	if err := s.end(); err != nil {
		t.Error(err)
	}
}

// TestMemoryIsReturned checks that a message counts only until the connection waits for the next one: clients that are idle
// after large messages do not use up their share.
func TestMemoryIsReturned(t *testing.T) {
	m := &ratelimit.Shares{}
	for name, reading := range map[string]func(*share, io.Reader) ([]byte, error){
		"frames": func(s *share, r io.Reader) ([]byte, error) { s.release(); return s.readAll(r) },
		"lines": func(s *share, r io.Reader) ([]byte, error) {
			l := jsonrpc.NewLineReader(r, rpc.MaxMessage)
			l.Hold = s.hold
			return l.Next()
		},
	} {
		s := &share{of: m, who: "a"}
		text := bytes.Repeat([]byte("x"), part)
		for range 20 {
			got, err := reading(s, bytes.NewReader(text))
			if held, _ := m.Held(); err != nil || !bytes.Equal(got, text) || held < part-freeReceived {
				t.Fatalf("%s: %d bytes, %v; %d are counted", name, len(got), err, held)
			}
		}
		_, err := reading(s, strings.NewReader(""))
		if held, holders := m.Held(); err != nil && !errors.Is(err, io.EOF) || held != 0 || holders != 0 {
			t.Errorf("%s: %d bytes of %d clients are counted while it waits; %v", name, held, holders, err)
		}
	}
}

// TestUnixMemory checks the bound for lines that do not end.
func TestUnixMemory(t *testing.T) {
	m := &ratelimit.Shares{}
	if !m.Take("a", maxReceivedShare-part/2, received) {
		t.Fatal("the share is smaller than documented")
	}
	dir := filepath.Join(ownDir(t), "s")
	l, err := net.Listen("unix", dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", dir)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	served, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = served.SetReadDeadline(time.Now().Add(sandboxtest.Slow(20 * time.Second)))
	conn := newLines(served, &share{of: m, who: "a"})
	go func() { _, _ = client.Write(bytes.Repeat([]byte("x"), part)) }()
	if text, err := conn.Read(); !errors.Is(err, errNoMemory) {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	_ = conn.Close()
}
