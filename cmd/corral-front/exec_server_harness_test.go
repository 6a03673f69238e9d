package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"corral/config"
	"corral/internal/sandboxtest"
)

// What the tests of corral exec-server have in common: servers, and clients that speak to the built program over its
// standard streams, a unix socket or a WebSocket.

// The ways in which a client reaches a server.
const (
	overStdio = "stdio"
	overUnix  = "unix"
	overWeb   = "ws"
)

// transports are all of them.
func transports() []string { return []string{overStdio, overUnix, overWeb} }

// An execSite is what clients connect to: a server that listens, or for stdio one that is started for each client.
type execSite struct {
	t       *testing.T
	p       *place
	over    string
	args    []string
	token   string
	address string // of a listening server
	cmd     *exec.Cmd
	said    log
	ended   chan struct{}
}

// execSite starts a server on the place's repository with a supervisor; sections are of its configuration.
func (p *place) execSite(t *testing.T, d *daemon, over, sections string) *execSite {
	t.Helper()
	s := &execSite{t: t, p: p, over: over}
	token, hash := config.NewToken()
	s.token = token
	sections += fmt.Sprintf("principals:\n  - {name: ci, token_sha256: \"%x\"}\n", hash)
	s.args = []string{"exec-server", "--config", p.config(t, sections), "--supervisor", d.socket}
	switch over {
	case overUnix:
		s.listen("unix://" + filepath.Join(p.dir, "state", fmt.Sprintf("exec%d", serial.Add(1))))
	case overWeb:
		s.listen("ws://127.0.0.1:0")
	}
	return s
}

// listen starts the server, and waits until it says where it is.
func (s *execSite) listen(address string) {
	s.t.Helper()
	s.cmd = s.p.front(append(s.args, "--listen", address)...)
	s.start(s.cmd)
	sandboxtest.Eventually(s.t, 20*time.Second, "the server listens", func() bool {
		_, rest, found := strings.Cut(s.said.String(), `"url":"`)
		s.address, _, _ = strings.Cut(rest, `"`)
		select {
		case <-s.ended:
			s.t.Fatalf("the server has ended: %s", s.said.String())
		default:
		}
		return found
	})
}

// start starts a server, which is ended with the test.
func (s *execSite) start(cmd *exec.Cmd) {
	s.t.Helper()
	cmd.Stderr = &s.said
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	s.ended = ended
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if s.t.Failed() {
			s.t.Logf("the server has said:\n%s", s.said.String())
		}
	})
}

// pid is the server's, of which a client is served.
func (s *execSite) pid() int { return s.cmd.Process.Pid }

// An execMessage is what a server sends.
type execMessage struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
	}
	nth int // of all that came
	raw []byte
}

// A deltas is what came of one process.
type deltas struct {
	data  [2][]byte // by stream; only the sum of their lengths is kept when there is much
	total [2]int
	caps  [2]bool
	after [2]int // deltas after the one with capReached
	last  int    // nth of the last one
}

// An execClient is a client of a server.
type execClient struct {
	t     *testing.T
	write func(text []byte) error
	read  func() ([]byte, error) // the next message
	close func()
	ended chan struct{} // closed when the connection has ended
	held  sync.Mutex    // while it is locked no message is read, but for one

	mu      sync.Mutex
	id      int                            // guarded by mu
	nth     int                            // guarded by mu
	pending map[string]chan<- *execMessage // guarded by mu
	streams map[string]*deltas             // guarded by mu
	exited  map[string]chan<- *execMessage // guarded by mu: who waits for process/exited
	stray   []string                       // guarded by mu
}

// dial connects a client, and does not begin to read.
func (s *execSite) dial() *execClient {
	s.t.Helper()
	c := &execClient{
		t: s.t, ended: make(chan struct{}), pending: map[string]chan<- *execMessage{}, streams: map[string]*deltas{},
		exited: map[string]chan<- *execMessage{},
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
	s.cmd = cmd
	to, err := s.cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.cmd.Stdout = w
	s.start(s.cmd)
	_ = w.Close()
	c.close = func() { _, _ = to.Close(), r.Close() }
	c.lines(to, r)
}

// lines has messages on lines.
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

// client connects a client that is initialized.
func (s *execSite) client() *execClient {
	s.t.Helper()
	c := s.dial()
	go c.receive()
	c.must("initialize", object{"clientInfo": object{"name": "test", "version": "1"}})
	c.send(object{"method": "initialized"})
	return c
}

// receive takes what the server sends, until the connection ends.
func (c *execClient) receive() {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, waiting := range []map[string]chan<- *execMessage{c.pending, c.exited} {
			for id, one := range waiting {
				close(one)
				delete(waiting, id)
			}
		}
		close(c.ended)
	}()
	for {
		c.held.Lock()
		c.held.Unlock() //nolint:staticcheck // it has waited
		text, err := c.read()
		if err != nil {
			return
		}
		m := &execMessage{raw: text}
		var all map[string]json.RawMessage
		if json.Unmarshal(text, &all) != nil || json.Unmarshal(text, m) != nil || all["jsonrpc"] != nil {
			c.t.Errorf("the server has sent %.200q", text)
			continue
		}
		c.take(m)
	}
}

func (c *execClient) take(m *execMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nth++
	m.nth = c.nth
	switch m.Method {
	case "command/exec/outputDelta", "process/outputDelta":
		c.delta(m)
	case "process/exited":
		var p struct{ ProcessHandle string }
		_ = json.Unmarshal(m.Params, &p)
		if waiting := c.exited[p.ProcessHandle]; waiting != nil {
			waiting <- m
			delete(c.exited, p.ProcessHandle)
			return
		}
		c.stray = append(c.stray, string(m.raw))
	default:
		if waiting := c.pending[string(m.ID)]; waiting != nil && m.Method == "" {
			waiting <- m
			delete(c.pending, string(m.ID))
			return
		}
		c.stray = append(c.stray, string(m.raw))
	}
}

// maxKept is how much of a stream a client keeps.
const maxKept = 4 << 20

// delta is called with mu held.
func (c *execClient) delta(m *execMessage) {
	var p struct {
		ProcessID, ProcessHandle string
		Stream                   string
		DeltaBase64              string
		CapReached               bool
	}
	err := json.Unmarshal(m.Params, &p)
	data, bad := base64.StdEncoding.DecodeString(p.DeltaBase64)
	n, known := map[string]int{"stdout": 0, "stderr": 1}[p.Stream]
	if err != nil || bad != nil || !known {
		c.t.Errorf("a delta that is none: %.200q", m.raw)
		return
	}
	d := c.stream(p.ProcessID + p.ProcessHandle)
	if d.caps[n] {
		d.after[n]++
	}
	d.caps[n] = d.caps[n] || p.CapReached
	d.total[n] += len(data)
	if len(d.data[n]) < maxKept {
		d.data[n] = append(d.data[n], data...)
	}
	d.last = m.nth
}

// stream is called with mu held.
func (c *execClient) stream(id string) *deltas {
	if c.streams[id] == nil {
		c.streams[id] = &deltas{}
	}
	return c.streams[id]
}

// of returns what has come of a process, as it is now.
func (c *execClient) of(id string) deltas {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *c.stream(id)
}

// forget forgets it.
func (c *execClient) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.streams, id)
}

func (c *execClient) send(message object) {
	text, err := json.Marshal(message)
	if err == nil {
		err = c.write(text)
	}
	if err != nil {
		c.t.Logf("send: %v", err) // a server that has ended gives no answer, which is seen
	}
}

// ask sends a request. The channel has its answer, or is closed when the connection has ended.
func (c *execClient) ask(method string, params any) <-chan *execMessage {
	c.mu.Lock()
	c.id++
	id := c.id
	answer := make(chan *execMessage, 1)
	c.pending[itoa(id)] = answer
	c.mu.Unlock()
	c.send(object{"id": id, "method": method, "params": params})
	return answer
}

// answer waits for one.
func (c *execClient) answer(what string, answer <-chan *execMessage) *execMessage {
	c.t.Helper()
	select {
	case m := <-answer:
		if m == nil {
			c.t.Fatalf("%s: the connection has ended", what)
		}
		return m
	case <-time.After(sandboxtest.Slow(2 * time.Minute)):
		c.t.Fatalf("%s: no answer", what)
	}
	return nil
}

// call sends a request and waits for its answer.
func (c *execClient) call(method string, params any) *execMessage {
	c.t.Helper()
	return c.answer(method, c.ask(method, params))
}

// must is call, whose answer is no error.
func (c *execClient) must(method string, params any) *execMessage {
	c.t.Helper()
	m := c.call(method, params)
	if m.Error != nil {
		c.t.Fatalf("%s: %+v", method, *m.Error)
	}
	return m
}

// An execResult is what command/exec answers.
type execResult struct {
	ExitCode                         *int
	Stdout, Stderr                   *string
	StdoutTruncated, StderrTruncated bool
	nth                              int
}

// result is an answer of command/exec that is no error.
func (c *execClient) result(what string, answer <-chan *execMessage) execResult {
	c.t.Helper()
	m := c.answer(what, answer)
	if m.Error != nil {
		c.t.Fatalf("%s: %+v", what, *m.Error)
	}
	r := execResult{nth: m.nth}
	if err := json.Unmarshal(m.Result, &r); err != nil || r.ExitCode == nil || r.Stdout == nil || r.Stderr == nil {
		c.t.Fatalf("%s: %s, %v", what, m.Result, err)
	}
	return r
}

// start begins command/exec.
func (c *execClient) start(params object, command ...string) <-chan *execMessage {
	all := object{"command": command}
	for name, value := range params {
		all[name] = value
	}
	return c.ask("command/exec", all)
}

// exec runs command/exec.
func (c *execClient) exec(params object, command ...string) execResult {
	c.t.Helper()
	return c.result(fmt.Sprintf("%q", command), c.start(params, command...))
}

// shell runs a script.
func (c *execClient) shell(script string) execResult {
	c.t.Helper()
	return c.exec(nil, "sh", "-c", script)
}

func base64Of(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
