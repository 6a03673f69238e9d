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
	"time"
	"unicode/utf8"

	"corral/internal/text"
)

const (
	// endPatience is how long the last answers may take to be read once the client has stopped to write.
	endPatience  = time.Second
	maxProcesses = 128 // of a connection at once
	// maxServed is how many processes all connections together may have: a supervisor ends the connection of a front-end
	// that has more than 256 jobs.
	maxServed = 224
)

// Causes of the end of a process's context.
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
	ctx  context.Context // of its processes
	out  *outbox
	all  sync.WaitGroup // its processes

	// Of the goroutine that reads; what a process sees of them is set before it is made.
	greeted bool
	muted   []string // methods of notifications that it does not want

	mu        sync.Mutex
	pending   map[string]bool     // guarded by mu: requests without an answer, by idKey
	processes map[handle]*process // guarded by mu
	unnamed   int                 // guarded by mu: processes so far that the client has no name for
}

// A handle is what a process is known by. The two families of methods have names of their own.
type handle struct {
	family *family
	name   string
	number int // of one without a name; else 0
}

func (s *Server) serve(parent context.Context, conn Conn, who Caller) error {
	if who.Session == "" {
		who.Session = randomHex(16)
	}
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	c := &client{
		s: s, conn: conn, who: who, ctx: ctx, out: newOutbox(conn),
		pending: map[string]bool{}, processes: map[handle]*process{},
	}
	go c.out.run()
	read := make(chan struct{})
	var err error // of reading, if that ended the connection
	go func() {
		defer close(read)
		err = c.read()
	}()

	ended := false
	select {
	case <-read:
		ended = true
	case <-c.out.done: // it cannot be written to
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

// end ends every process and closes the connection. Who has ended it by no longer writing may read the last answers. It
// returns why the client could not be written to.
func (c *client) end(cancel context.CancelCauseFunc, ended bool) error {
	cancel(errGone)
	if ended { // no process is added any more
		timer := time.NewTimer(endPatience)
		defer timer.Stop()
		go func() {
			c.all.Wait()
			c.out.close()
		}()
		select {
		case <-c.out.done:
		case <-timer.C:
		}
	}
	failure := c.out.failure()
	c.out.abort(errGone)
	_ = c.conn.Close()
	<-c.out.done
	return failure
}

// read reads until the connection ends.
func (c *client) read() error {
	for c.out.waitRoom() {
		text, err := c.conn.Read()
		switch {
		case errors.Is(err, ErrTooLong):
			c.refuse(nil, invalid("a message has at most %d bytes", MaxMessage))
		case err != nil:
			return err
		case len(bytes.TrimSpace(text)) > 0:
			c.handle(text)
		}
	}
	return nil
}

// handle answers one message, or begins what will answer it.
func (c *client) handle(line []byte) {
	m, f := parse(line)
	switch {
	case f != nil:
		c.refuse(m.id, f)
	case m.id == nil: // a notification: none is of interest
	case c.isPending(m.id):
		c.refuse(m.id, faultOf(codeRequest, "a request with id %s is under way", text.Line(string(m.id), maxWord)))
	default:
		if f := c.serve(&m); f != nil {
			c.refuse(m.id, f)
		}
	}
}

// serve answers a request, or begins what will answer it; with a fault it has done neither.
func (c *client) serve(m *message) *fault {
	switch {
	case m.method == "initialize":
		return c.initialize(m)
	case !c.greeted:
		return faultOf(codeRequest, "Not initialized")
	}
	for _, f := range families() {
		for _, method := range f.methods {
			if method.name == m.method {
				return c.noteFault(f, m, method.serve(c, f, m))
			}
		}
	}
	return invalid("unknown method `%s`", text.Line(m.method, maxWord))
}

// noteFault notes a process that a client wanted to start, and that came to nothing.
func (c *client) noteFault(f *family, m *message, wrong *fault) *fault {
	if wrong != nil && m.method == f.name {
		c.begin(f, m).End(c.ctx, c.s.Log, 0, strconv.Itoa(wrong.Code))
	}
	return wrong
}

// initialize is the first request of a connection.
func (c *client) initialize(m *message) *fault {
	if c.greeted {
		return faultOf(codeRequest, "Already initialized")
	}
	r := read(m.params)
	info := r.object("clientInfo", r.must("clientInfo"))
	name := info.text("clientInfo.name", info.must("name"))
	r.inherit(info)
	if raw := r.has("capabilities"); raw != nil {
		capabilities := r.object("capabilities", raw)
		const optOut = "optOutNotificationMethods"
		c.muted = capabilities.texts("capabilities."+optOut, capabilities.has(optOut))
		r.inherit(capabilities)
	}
	if r.fault != nil {
		return r.fault
	}
	c.greeted = true
	home := c.s.Home
	if home == "" {
		home = c.s.Dir
	}
	c.reply(m.id, struct {
		UserAgent string `json:"userAgent"`
		Home      string `json:"codexHome"`
		Family    string `json:"platformFamily"`
		OS        string `json:"platformOs"`
	}{c.s.userAgent(word(name)), home, "unix", "linux"})
	return nil
}

// word is a client's name as a word of a line: what is not shown is left out, for nothing is to be told of it.
func word(s string) string {
	return text.Cut(strings.Map(func(r rune) rune {
		if r == ' ' || r == utf8.RuneError || !strconv.IsPrint(r) {
			return -1
		}
		return r
	}, s), maxWord)
}

// wants reports whether the client wants notifications of a method.
func (c *client) wants(method string) bool { return !slices.Contains(c.muted, method) }

func (c *client) refuse(id json.RawMessage, f *fault) { c.out.answer(errorOf(id, f)) }

func (c *client) reply(id json.RawMessage, result any) { c.out.answer(answerOf(id, encode(result))) }

// empty is the result that says nothing.
type empty struct{}

func (c *client) isPending(id json.RawMessage) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending[idKey(id)]
}

// await keeps the id of a request that will be answered later.
func (c *client) await(id json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending[idKey(id)] = true
}

// settle gives the late answer to a request: from now on its id may be used again.
func (c *client) settle(id json.RawMessage, text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, idKey(id))
	c.out.answer(text)
}

// find returns a process by the name that the client gave it.
func (c *client) find(f *family, name string) (*process, *fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.processes[handle{family: f, name: name}]; p != nil {
		return p, nil
	}
	return nil, faultOf(codeRequest, "%s %s", f.unknown, quoted(name))
}
