package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"corral/internal/calls"
	"corral/internal/jsonrpc"
	"corral/internal/strictjson"
	"corral/internal/text"
)

const (
	// finalReadTimeout bounds the time to write the last answers after the client closed its sending side.
	finalReadTimeout = time.Second
	maxProcesses     = 128 // per connection

	// Bounds on data that waits for a client to read.
	maxDeltas  = 256 << 10 // bytes; above, output is not read from the pipes of processes
	maxAnswers = 16 << 20  // bytes; above, no messages are read from the client

	// maxServed is the maximum number of processes of all connections together. The supervisor closes the connection of a
	// front-end that has more than 256 jobs.
	maxServed = 224
)

// Causes with which the context of a process is canceled.
var (
	errTerminated = errors.New("terminated by the client")
	errGone       = errors.New("the connection has ended")
	errBudget     = errors.New("more output than the server holds")
)

// A client is one connection.
type client struct {
	s    *Server
	conn Conn
	who  Caller
	ctx  context.Context // parent context of the client's processes
	out  atomic.Pointer[jsonrpc.Outbox]
	all  sync.WaitGroup // running processes

	// Used by the goroutine that reads. A process reads only what was set before it was created.
	initialized bool
	muted       []string // notification methods that the client opted out of

	mu        sync.Mutex
	pending   map[string]bool     // guarded by mu: unanswered requests, by idKey
	processes map[handle]*process // guarded by mu
	unnamed   int                 // guarded by mu: number of processes so far that the client gave no id

	environment *environment // nil unless this is a session of the environment protocol
}

// A handle is the key of a process. Each family of methods has its own name space.
type handle struct {
	family *family
	name   string
	number int // distinguishes processes without a name; otherwise 0
}

// Serve serves one client. It reads from conn until io.EOF, an error, or the end of ctx. It then ends every process of
// the connection, closes conn, and returns after the last process has ended. A client that closed only its sending side,
// as with a pipe, has one second to read the remaining answers.
//
// The error is nil after io.EOF, ctx.Err() if ctx ended, and otherwise the error of conn.
func (s *Server) Serve(ctx context.Context, conn Conn, who Caller) error {
	if who.Session == "" {
		who.Session = calls.RandomHex(16)
	}
	parent := ctx
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	c := &client{
		s: s, conn: conn, who: who, ctx: ctx,
		pending: map[string]bool{}, processes: map[handle]*process{},
	}
	out := newOutbox(conn)
	c.out.Store(out)
	go out.Run()
	read := make(chan struct{})
	var err error // of c.read; valid once read is closed
	go func() {
		defer close(read)
		err = c.listen(ctx, conn, out)
	}()

	ended := false
	select {
	case <-read:
		ended = true
	case <-out.Done(): // writing failed
	case <-ctx.Done():
	}
	failure := c.end(cancel, ended)
	<-read
	c.all.Wait()
	if s.Ended != nil {
		s.Ended(who.Principal, who.Session)
	}
	switch {
	case failure != nil:
		return fmt.Errorf("write to the client: %w", failure)
	case ended && err != nil && !errors.Is(err, io.EOF):
		return fmt.Errorf("read from the client: %w", err)
	}
	return parent.Err()
}

// end ends every process and closes the connection. If ended is true, the client closed its sending side and may still
// read the last answers. The error is that of writing to the client.
func (c *client) end(cancel context.CancelCauseFunc, ended bool) error {
	out := c.out.Load()
	cancel(errGone)
	if ended { // no process can be added any more
		timer := time.NewTimer(finalReadTimeout)
		defer timer.Stop()
		go func() {
			c.all.Wait()
			out.Close()
		}()
		select {
		case <-out.Done():
		case <-timer.C:
		}
	}
	failure := out.Failure()
	out.Fail(errGone)
	_ = c.conn.Close()
	<-out.Done()
	return failure
}

// listen handles messages until the connection ends, or nothing more can be written to it.
func (c *client) listen(ctx context.Context, conn Conn, out *jsonrpc.Outbox) error {
	for out.WaitBelow(ctx, maxAnswers) {
		text, err := conn.Read()
		switch {
		case errors.Is(err, ErrTooLong):
			c.refuse(nil, invalid("the message is too long: at most %d bytes are accepted", MaxMessage))
		case err != nil:
			return err
		case len(bytes.TrimSpace(text)) > 0:
			c.handle(text)
		}
	}
	return nil
}

// handle answers one message, or starts the process that will answer it.
func (c *client) handle(line []byte) {
	m, f := parse(line)
	switch {
	case f != nil:
		c.refuse(m.id, f)
	case m.id == nil: // notifications are ignored
	case c.isPending(m.id):
		c.refuse(m.id, jsonrpc.Errorf(jsonrpc.CodeRequest,
			"a request with id %s is still pending: use another id", text.Line(string(m.id), maxWord)))
	default:
		if f := c.serve(&m); f != nil {
			c.refuse(m.id, f)
		}
	}
}

// serve answers a request, or starts the process that will answer it. If it returns a fault, it did neither.
func (c *client) serve(m *message) *jsonrpc.Error {
	switch {
	case c.environment != nil:
		return c.serveEnvironment(m)
	case m.method == "initialize":
		return c.initialize(m)
	case !c.initialized:
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "Not initialized")
	}
	for _, method := range methods() {
		if method.name == m.method {
			return c.recordFault(method.family, m, method.serve(c, method.family, m))
		}
	}
	return invalid("unknown method `%s`", text.Line(m.method, maxWord))
}

// recordFault logs a request to start a process if it failed.
func (c *client) recordFault(f *family, m *message, wrong *jsonrpc.Error) *jsonrpc.Error {
	if wrong != nil && m.method == f.name {
		c.begin(f, m).End(c.ctx, c.s.Log, 0, strconv.Itoa(wrong.Code))
	}
	return wrong
}

// initialize serves the first request of a connection.
func (c *client) initialize(m *message) *jsonrpc.Error {
	if c.initialized {
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "Already initialized")
	}
	r := read(m.params)
	if jsonrpc.String(r.fields["clientName"]) == environmentClient {
		const hint = `set args = ["codex-environment"] with program = "corral" in $CODEX_HOME/environments.toml, or start corral codex-environment for its url`
		c.s.warn(c.ctx, "the client needs an execution environment of Codex, which this server is not", "hint", hint)
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "corral exec-server is not an execution environment: %s", hint)
	}
	info := r.object("clientInfo", r.required("clientInfo"))
	name := info.text("clientInfo.name", info.required("name"))
	r.inherit(info)
	if raw := r.optional("capabilities"); raw != nil {
		capabilities := r.object("capabilities", raw)
		const optOut = "optOutNotificationMethods"
		c.muted = capabilities.stringArray("capabilities."+optOut, capabilities.optional(optOut))
		r.inherit(capabilities)
	}
	if r.fault != nil {
		return r.fault
	}
	c.initialized = true
	home := c.s.Home
	if home == "" {
		home = c.s.Dir
	}
	c.reply(m.id, struct {
		UserAgent string `json:"userAgent"`
		Home      string `json:"codexHome"`
		Family    string `json:"platformFamily"`
		OS        string `json:"platformOs"`
	}{c.s.userAgent(printable(name)), home, "unix", "linux"})
	return nil
}

// printable strips spaces and invisible characters from a client's name.
func printable(s string) string {
	return text.Cut(strings.Map(func(r rune) rune {
		if r == ' ' || r == utf8.RuneError || !strconv.IsPrint(r) {
			return -1
		}
		return r
	}, s), maxWord)
}

// wants reports whether the client accepts notifications of a method.
func (c *client) wants(method string) bool { return !slices.Contains(c.muted, method) }

// newOutbox returns an outbox that writes to conn.
func newOutbox(conn Conn) *jsonrpc.Outbox {
	return jsonrpc.NewOutbox(func(i *jsonrpc.Item) error {
		switch {
		case i.Build == nil:
			return conn.Write(i.Text)
		case i.Size <= maxWhole:
			return conn.Write(slices.Concat(slices.Collect(i.Build())...))
		}
		return conn.WritePieces(i.Build())
	})
}

// answer queues a text without blocking.
func (c *client) answer(text []byte) { c.out.Load().Put(jsonrpc.Item{Text: text}) }

func (c *client) refuse(id json.RawMessage, f *jsonrpc.Error) { c.answer(dialect.Error(id, f)) }

func (c *client) reply(id json.RawMessage, result any) {
	c.answer(dialect.Result(id, strictjson.Encode(result)))
}

// empty is the result {}.
type empty struct{}

func (c *client) isPending(id json.RawMessage) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending[jsonrpc.Key(id)]
}

// addPending records the id of a request that will be answered later.
func (c *client) addPending(id json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending[jsonrpc.Key(id)] = true
}

// answerPending sends the answer to a pending request of the connection that writes the outbox to. From then on its id may be reused.
func (c *client) answerPending(to *jsonrpc.Outbox, id json.RawMessage, text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetPending(to, id)
	to.Put(jsonrpc.Item{Text: text})
}

// forgetPending says that a request is answered. On another connection of the session, its id is that of another request. The caller holds
// c.mu.
func (c *client) forgetPending(to *jsonrpc.Outbox, id json.RawMessage) {
	if c.out.Load() == to {
		delete(c.pending, jsonrpc.Key(id))
	}
}

// find returns the process that the client gave name to.
func (c *client) find(f *family, name string) (*process, *jsonrpc.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.processes[handle{family: f, name: name}]; p != nil {
		return p, nil
	}
	return nil, jsonrpc.Errorf(jsonrpc.CodeRequest, "%s %s", f.unknown, quoted(name))
}
