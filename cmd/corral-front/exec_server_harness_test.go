package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"corral/internal/config"
	"corral/internal/test/sandboxtest"
)

// The harness for tests of corral exec-server: servers, and clients that talk to the built program over its standard
// streams, a unix socket or a WebSocket.

// The transports.
const (
	overStdio = "stdio"
	overUnix  = "unix"
	overWeb   = "ws"
)

// An execSite is a listening server, or, over stdio, starts one for each client.
type execSite struct {
	t       *testing.T
	p       *place
	over    string
	args    []string
	token   string
	address string // of a listening server
	server  *sandboxtest.Command
}

// execSite starts a server on the place's repository. sections are appended to its configuration.
func (p *place) execSite(t *testing.T, d *sandboxtest.Supervisor, over, sections string) *execSite {
	t.Helper()
	s := &execSite{t: t, p: p, over: over}
	token, hash := config.NewToken()
	s.token = token
	sections += fmt.Sprintf("principals:\n  - {name: ci, token_sha256: \"%x\"}\n", hash)
	s.args = []string{"exec-server", "--config", p.config(t, sections), "--supervisor", d.Socket}
	switch over {
	case overUnix:
		s.listen("unix://" + filepath.Join(p.dir, "state", fmt.Sprintf("exec%d", serial.Add(1))))
	case overWeb:
		s.listen("ws://127.0.0.1:0")
	}
	return s
}

// listen starts the server, and waits until it logs its address.
func (s *execSite) listen(address string) {
	s.t.Helper()
	s.server = sandboxtest.Start(s.t, s.p.front(append(s.args, "--listen", address)...))
	sandboxtest.Eventually(s.t, 20*time.Second, "the server listens", func() bool {
		_, rest, found := strings.Cut(s.server.Err.String(), `"url":"`)
		s.address, _, _ = strings.Cut(rest, `"`)
		if s.server.EndsWithin(0) {
			s.t.Fatalf("the server has ended: %s", s.server.Err.String())
		}
		return found
	})
}

// pid returns the process id of a listening server.
func (s *execSite) pid() int { return s.server.Process.Pid }

// dial connects a client that does not read yet.
func (s *execSite) dial() *execClient {
	s.t.Helper()
	c := &execClient{
		t: s.t, ended: make(chan struct{}), pending: map[string]chan<- *execMessage{}, streams: map[string]*deltas{},
	}
	switch s.over {
	case overStdio:
		s.dialStdio(c)
	case overUnix:
		conn, err := net.Dial("unix", strings.TrimPrefix(s.address, "unix://"))
		if err != nil {
			s.t.Fatal(err)
		}
		c.close = func() { _ = conn.Close() }
		c.lines(conn, conn)
	case overWeb:
		s.dialWeb(c)
	}
	s.t.Cleanup(c.close)
	return c
}

func (s *execSite) dialStdio(c *execClient) {
	s.t.Helper()
	s.run(c, s.p.front(s.args...))
}

// run starts the server of one client.
func (s *execSite) run(c *execClient, cmd *exec.Cmd) {
	s.t.Helper()
	to, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd.Stdout = w
	s.server = sandboxtest.Start(s.t, cmd)
	_ = w.Close()
	c.close = func() { _, _ = to.Close(), r.Close() }
	c.lines(to, r)
}

// lines sets up a client with one message per line.
func (c *execClient) lines(to io.Writer, from io.Reader) {
	c.write = func(text []byte) error {
		_, err := to.Write(append(bytes.Clone(text), '\n'))
		return err
	}
	r := bufio.NewReaderSize(from, 1<<16)
	c.read = func() ([]byte, error) { return r.ReadBytes('\n') }
}

func (s *execSite) dialWeb(c *execClient) {
	s.t.Helper()
	ws, _, err := websocket.Dial(s.t.Context(), s.address, &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + s.token}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ws.SetReadLimit(-1)
	c.close = func() { _ = ws.CloseNow() }
	c.write = func(text []byte) error { return ws.Write(context.Background(), websocket.MessageText, text) }
	c.read = func() ([]byte, error) {
		kind, text, err := ws.Read(context.Background())
		if err == nil && kind != websocket.MessageText {
			err = fmt.Errorf("a frame of kind %v", kind)
		}
		return text, err
	}
}
