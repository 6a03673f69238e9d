package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"corral/internal/jsonrpc"
	"corral/internal/test/sandboxtest"
)

// An execMessage is a message from the server.
type execMessage struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
	}
	nth int // position among all received messages
	raw []byte
}

// A deltas is the output received from one process.
type deltas struct {
	total [2]int // bytes by stream
	last  int    // nth of the last message
}

// An execClient is a client of corral exec-server.
type execClient struct {
	t     *testing.T
	write func(text []byte) error
	read  func() ([]byte, error) // returns the next message
	close func()
	ended chan struct{} // closed when the connection has ended
	held  sync.Mutex    // while locked, at most one more message is read

	mu      sync.Mutex
	id      int                            // guarded by mu
	nth     int                            // guarded by mu
	pending map[string]chan<- *execMessage // guarded by mu
	streams map[string]*deltas             // guarded by mu
	stray   []string                       // guarded by mu
}

// client connects and initializes a client.
func (s *execSite) client() *execClient {
	s.t.Helper()
	c := s.dial()
	go c.receive()
	c.must("initialize", object{"clientInfo": object{"name": "test", "version": "1"}})
	c.send(object{"method": "initialized"})
	return c
}

// receive receives messages until the connection ends.
func (c *execClient) receive() {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for id, waiting := range c.pending {
			close(waiting)
			delete(c.pending, id)
		}
		close(c.ended)
	}()
	for {
		c.held.Lock()
		c.held.Unlock() //nolint:staticcheck // locking it was the wait
		text, err := c.read()
		if err != nil {
			return
		}
		m := &execMessage{raw: text}
		var all map[string]json.RawMessage
		if json.Unmarshal(text, &all) != nil || json.Unmarshal(text, m) != nil || all["jsonrpc"] != nil {
			c.t.Errorf("the server sent %.200q", text)
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
	case "command/exec/outputDelta":
		c.delta(m)
	default:
		if waiting := c.pending[string(m.ID)]; waiting != nil && m.Method == "" {
			waiting <- m
			delete(c.pending, string(m.ID))
			return
		}
		c.stray = append(c.stray, string(m.raw))
	}
}

// delta records output of a process. The caller holds mu.
func (c *execClient) delta(m *execMessage) {
	var p struct {
		ProcessID, Stream string
		DeltaBase64       []byte
	}
	err := json.Unmarshal(m.Params, &p)
	n, known := map[string]int{"stdout": 0, "stderr": 1}[p.Stream]
	if err != nil || !known {
		c.t.Errorf("invalid delta: %.200q", m.raw)
		return
	}
	d := c.stream(p.ProcessID)
	d.total[n] += len(p.DeltaBase64)
	d.last = m.nth
}

// stream returns the record of a process. The caller holds mu.
func (c *execClient) stream(id string) *deltas {
	if c.streams[id] == nil {
		c.streams[id] = &deltas{}
	}
	return c.streams[id]
}

func (c *execClient) send(message object) {
	text, err := json.Marshal(message)
	if err == nil {
		err = c.write(text)
	}
	if err != nil {
		c.t.Logf("send: %v", err) // the caller notices that the server has ended
	}
}

// ask sends a request. The channel receives its answer, and is closed if the connection ends before.
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

// answer waits for an answer of ask.
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

// must sends a request whose answer must not be an error.
func (c *execClient) must(method string, params any) {
	c.t.Helper()
	if m := c.call(method, params); m.Error != nil {
		c.t.Fatalf("%s: %+v", method, *m.Error)
	}
}

// An execResult is the result of command/exec.
type execResult struct {
	ExitCode       *int
	Stdout, Stderr *string
	nth            int
}

// result waits for an answer of command/exec that must not be an error.
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

// start sends command/exec.
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

// shell runs a shell script.
func (c *execClient) shell(script string) execResult {
	c.t.Helper()
	return c.exec(nil, "sh", "-c", script)
}

// refused sends an invalid request and compares the error. message may end in …, which stands for any text.
func (c *execClient) refused(method, params, message string) {
	c.t.Helper()
	m := c.call(method, json.RawMessage(params))
	begin, isBegin := strings.CutSuffix(message, "…")
	switch {
	case m.Error == nil:
		c.t.Errorf("%s %.200s: %.200s, want %q", method, params, m.Result, message)
	case m.Error.Code != jsonrpc.CodeRequest, isBegin && !strings.HasPrefix(m.Error.Message, begin), !isBegin && m.Error.Message != message:
		c.t.Errorf("%s %.200s: %d %q, want %d %q", method, params, m.Error.Code, m.Error.Message, jsonrpc.CodeRequest, message)
	}
}
