package rpc

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corral/internal/jsonrpc"
	"corral/internal/test/sandboxtest"
	"corral/job"
)

// A pipeConn is an unbuffered in-memory connection, as both ends see it.
type pipeConn struct {
	in    chan []byte
	out   chan []byte
	over  chan struct{} // closed when the server calls Close
	close sync.Once

	revoked atomic.Bool
}

func (c *pipeConn) Revoked() bool { return c.revoked.Load() }

func newPipe() *pipeConn {
	return &pipeConn{in: make(chan []byte), out: make(chan []byte), over: make(chan struct{})}
}

var errTooLongText = []byte("too long")

func (c *pipeConn) Read() ([]byte, error) {
	select {
	case text, ok := <-c.in:
		switch {
		case !ok:
			return nil, io.EOF
		case bytes.Equal(text, errTooLongText):
			return nil, ErrTooLong
		}
		return text, nil
	case <-c.over:
		return nil, os.ErrClosed
	}
}

func (c *pipeConn) Write(text []byte) error {
	select {
	case c.out <- bytes.Clone(text):
		return nil
	case <-c.over:
		return os.ErrClosed
	}
}

func (c *pipeConn) WritePieces(pieces iter.Seq[[]byte]) error {
	return c.Write(slices.Concat(slices.Collect(pieces)...))
}

func (c *pipeConn) Close() error {
	c.close.Do(func() { close(c.over) })
	return nil
}

// A peer is a client in a test. It reads everything unless the test does not start read.
type peer struct {
	t     *testing.T
	conn  *pipeConn
	ended chan struct{} // closed when Serve has returned
	err   error         // returned by Serve
	over  chan struct{} // closed when read has returned

	mu    sync.Mutex
	id    int           // guarded by mu
	texts []arrival     // guarded by mu: all received messages
	news  chan struct{} // guarded by mu: closed when the next message arrives
}

// An arrival is one message from the server.
type arrival struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ProcessID     string `json:"processId"`
		ProcessHandle string `json:"processHandle"`
		Stream        string `json:"stream"`
		Delta         string `json:"deltaBase64"`
		CapReached    bool   `json:"capReached"`
		ExitCode      *int   `json:"exitCode"`
		Stdout        string `json:"stdout"`
		Stderr        string `json:"stderr"`
		StdoutCap     *bool  `json:"stdoutCapReached"`
		StderrCap     *bool  `json:"stderrCapReached"`
		Drain         *bool  `json:"outputDrainTimedOut"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *jsonrpc.Error  `json:"error"`
	raw    string
}

// A result is the result of command/exec.
type result struct {
	ExitCode        *int            `json:"exitCode"`
	Stdout          *string         `json:"stdout"`
	Stderr          *string         `json:"stderr"`
	StdoutTruncated bool            `json:"stdoutTruncated"`
	StderrTruncated bool            `json:"stderrTruncated"`
	Limit           string          `json:"limit"`
	Sensitive       []string        `json:"sensitiveChanges"`
	SensitiveMore   int             `json:"sensitiveChangesMore"`
	Network         *job.NetworkUse `json:"network"`
	Changes         string          `json:"changesHandle"`
}

// dial connects a peer, which is disconnected at the end of the test.
func dial(t *testing.T, s *Server) *peer {
	t.Helper()
	return dialAs(t.Context(), t, s, Caller{Principal: "user:ada"})
}

func dialAs(ctx context.Context, t *testing.T, s *Server, who Caller) *peer {
	t.Helper()
	p := &peer{t: t, conn: newPipe(), ended: make(chan struct{}), over: make(chan struct{}), news: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = s.Serve(ctx, p.conn, who)
	}()
	t.Cleanup(p.hangUp)
	return p
}

// greeted returns a peer that has sent initialize.
func initialized(t *testing.T, s *Server) *peer {
	t.Helper()
	p := dial(t, s)
	go p.read()
	p.must("initialize", `{"clientInfo":{"name":"test","version":"1"}}`)
	p.send(`{"method":"initialized"}`)
	return p
}

func (p *peer) hangUp() {
	select {
	case <-p.ended:
		return
	default:
	}
	p.conn.Close()
	select {
	case <-p.ended:
	case <-time.After(sandboxtest.Slow(time.Minute)):
		p.t.Error("Serve did not return after the connection was closed")
	}
}

func (p *peer) read() {
	defer close(p.over)
	for {
		select {
		case raw := <-p.conn.out:
			p.take(raw)
		case <-p.conn.over:
			return
		}
	}
}

func (p *peer) take(raw []byte) {
	m := arrival{raw: string(raw)}
	if err := json.Unmarshal(raw, &m); err != nil || bytes.Contains(raw, []byte("jsonrpc")) || bytes.ContainsAny(raw, "\n\r") {
		p.t.Errorf("%.300q: %v", raw, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.texts = append(p.texts, m)
	close(p.news)
	p.news = make(chan struct{})
}

func (p *peer) send(line string) {
	select {
	case p.conn.in <- []byte(line):
	case <-p.ended:
	}
}

// ask sends a request and returns its id.
func (p *peer) ask(method, params string) string {
	p.mu.Lock()
	p.id++
	id := fmt.Sprint(p.id)
	p.mu.Unlock()
	p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	return id
}

// all returns the messages received so far, and a channel that is closed when the next one arrives.
func (p *peer) all() ([]arrival, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.texts[:len(p.texts):len(p.texts)], p.news
}

// until returns the first message that ok accepts.
func (p *peer) until(what string, ok func(arrival) bool) arrival {
	p.t.Helper()
	limit := time.After(sandboxtest.Slow(2 * time.Minute))
	for seen := 0; ; {
		texts, news := p.all()
		for _, m := range texts[seen:] {
			if ok(m) {
				return m
			}
		}
		seen = len(texts)
		select {
		case <-news:
		case <-limit:
			p.t.Fatalf("no %s: %d texts", what, seen)
		case <-p.over:
			if texts, _ := p.all(); len(texts) == seen {
				p.t.Fatalf("no %s, and the connection has ended", what)
			}
		}
	}
}

func (p *peer) answer(id string) arrival {
	p.t.Helper()
	return p.until("answer to "+id, func(m arrival) bool { return string(m.ID) == id })
}

// must sends a request and fails the test unless it succeeds.
func (p *peer) must(method, params string) {
	p.t.Helper()
	if m := p.answer(p.ask(method, params)); m.Error != nil || m.Result == nil {
		p.t.Fatalf("%s: %s", method, m.raw)
	}
}

// result returns the result of a command/exec request.
func (p *peer) result(id string) result {
	p.t.Helper()
	m := p.answer(id)
	var r result
	if m.Error != nil || json.Unmarshal(m.Result, &r) != nil || r.ExitCode == nil || r.Stdout == nil || r.Stderr == nil {
		p.t.Fatalf("%.500s", m.raw)
	}
	return r
}

// output returns the output that deltas of a process have delivered so far.
func (p *peer) output(process, stream string) (data string, deltas int, capped bool) {
	p.t.Helper()
	texts, _ := p.all()
	var b strings.Builder
	for _, m := range texts {
		if name := m.Params.ProcessID + m.Params.ProcessHandle; name != process || m.Params.Stream != stream {
			continue
		}
		part, err := base64.StdEncoding.DecodeString(m.Params.Delta)
		if err != nil || capped {
			p.t.Fatalf("%v, after the cap: %v: %s", err, capped, m.raw)
		}
		b.Write(part)
		capped = m.Params.CapReached
		deltas++
	}
	return b.String(), deltas, capped
}
