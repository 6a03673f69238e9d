package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"corral/internal/calls"
	"corral/internal/jsonrpc"
	"corral/internal/strictjson"
	"corral/internal/text"
	"corral/job"
	"corral/workspace/edit"
)

// This file serves the environment protocol of Codex on the same engine as command/exec: a client starts processes, and reads and writes
// files, in the session that its connection has in each repository. See docs/how-to/run-codex-in-corral.md.

// Retention is how long a session whose connection broke waits for its client to come back.
const Retention = 45 * time.Second

// maxSessions is the maximum number of sessions of a principal, those that wait for their clients included.
const maxSessions = 64

// Error codes of the environment protocol.
const codeMissing = -32004 // no such file or directory

// environmentClient is the name with which Codex introduces itself to an environment.
const environmentClient = "codex-environment"

// An Environment is what a server of the environment protocol has in addition to that of command/exec.
type Environment struct {
	// Workspace is the access of jobs to the repository; nil is the repository's. Clients can only ask for less.
	Workspace *job.Workspace
	// Shell is the shell of jobs, an absolute path.
	Shell string
	// Find makes the server serve the repository of a path that is in none which it serves, and reports whether it does now. It is called
	// with paths that the client's user has chosen: those in requests before the first command, and the workspace of that. nil: the server
	// serves no other repositories.
	Find func(path string) bool

	mu       sync.Mutex
	sessions map[string]*client // guarded by mu: by their id
}

// environment is what a client of the environment protocol has in addition to one of command/exec.
type environment struct {
	ended []*process // guarded by client.mu: processes that have ended, which can still be read, the oldest first
	notes []string   // guarded by client.mu: refusals that the model has not been told
	repo  string     // guarded by client.mu: path of the repository used last, for paths in none
	begun bool       // guarded by client.mu: a command was started, or a repository found

	reads atomic.Int32 // that wait for output

	attached chan struct{} // guarded by client.mu: closed when the client comes back; nil while it is there
	unsent   int           // guarded by client.mu: bytes of output since the connection broke
	expiry   *time.Timer   // guarded by client.mu: ends the session; nil while the client is there
	over     bool          // guarded by client.mu: the session has ended
	end      func()        // ends it, and returns when nothing of it is left
	attaches sync.Mutex    // held by the connection that serves the session
}

// ServeEnvironment returns a function that serves one connection of the environment protocol, as Serve does. If the connection breaks, its
// session waits for that long for the client to come back; its processes go on.
func (s *Server) ServeEnvironment(retain time.Duration) func(ctx context.Context, conn Conn, who Caller) error {
	return func(ctx context.Context, conn Conn, who Caller) error {
		out := newOutbox(conn)
		go func() {
			out.Run()
			_ = conn.Close() // writing failed: nothing more need be read
		}()
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		defer stop()
		c, err := s.greet(ctx, conn, out, who)
		if err == nil {
			if err = c.listen(ctx, conn, out); err == nil {
				err = errGone
			}
			r, ok := conn.(interface{ Revoked() bool }) // the client may not come back
			c.detach(out, retain, ctx.Err() != nil || ok && r.Revoked())
		}
		out.Fail(errGone)
		_ = conn.Close()
		<-out.Done()
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
}

// greet reads messages until one opens or resumes a session.
func (s *Server) greet(ctx context.Context, conn Conn, out *jsonrpc.Outbox, who Caller) (*client, error) {
	for {
		line, err := conn.Read()
		if err != nil && !errors.Is(err, ErrTooLong) {
			return nil, err
		}
		m, f := parse(line)
		switch {
		case err != nil:
			m.id, f = nil, invalid("the message is too long: at most %d bytes are accepted", MaxMessage)
		case f != nil:
		case m.id == nil:
			continue
		case m.method != "initialize":
			f = jsonrpc.Errorf(jsonrpc.CodeRequest, "Not initialized")
		}
		if f == nil {
			var c *client
			if c, f = s.open(ctx, &m, out, who); f == nil {
				return c, nil
			}
		}
		out.Put(jsonrpc.Item{Text: dialect.Error(m.id, f)})
	}
}

// open answers initialize: with a new session, or one whose connection broke. If the server does not know yet that it broke, the client
// does: the old connection ends.
func (s *Server) open(ctx context.Context, m *message, out *jsonrpc.Outbox, who Caller) (*client, *jsonrpc.Error) {
	r := read(m.params)
	r.text("clientName", r.required("clientName"))
	resume := r.text("resumeSessionId", r.optional("resumeSessionId"))
	if r.fault != nil {
		return nil, r.bad()
	}
	e := s.Environment
	e.mu.Lock()
	c := e.sessions[resume]
	if c == nil && resume == "" && e.sessionsOf(who.Principal) >= maxSessions {
		e.mu.Unlock()
		return nil, jsonrpc.Errorf(codeBusy, "%s has %d sessions, which is the maximum: they end %v after their connections", who.Principal, maxSessions, Retention)
	}
	if c == nil && resume == "" {
		c = s.newSession(ctx, who)
		if e.sessions == nil {
			e.sessions = map[string]*client{}
		}
		e.sessions[c.who.Session] = c
	}
	e.mu.Unlock()
	if c == nil || c.who.Principal != who.Principal {
		return nil, jsonrpc.Errorf(jsonrpc.CodeRequest, "no session %s can be resumed: it has ended", quoted(text.Cut(resume, maxWord)))
	}
	c.out.Load().Fail(errGone) // ends the connection before
	c.environment.attaches.Lock()
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.environment
	if x.over || x.expiry != nil && !x.expiry.Stop() {
		x.attaches.Unlock()
		return nil, jsonrpc.Errorf(jsonrpc.CodeRequest, "no session %s can be resumed: it has ended", quoted(text.Cut(resume, maxWord)))
	}
	x.expiry = nil
	result := map[string]any{"sessionId": c.who.Session, "environmentInfo": s.info()}
	out.Put(jsonrpc.Item{Text: dialect.Result(m.id, strictjson.Encode(result))})
	c.out.Store(out)
	if x.attached != nil {
		close(x.attached)
		x.attached, x.unsent = nil, 0
	}
	return c, nil
}

// sessionsOf returns the number of sessions of a principal. The caller holds e.mu.
func (e *Environment) sessionsOf(principal string) (n int) {
	for _, c := range e.sessions {
		if c.who.Principal == principal {
			n++
		}
	}
	return n
}

// newSession returns the session of a client that has none.
func (s *Server) newSession(ctx context.Context, who Caller) *client {
	who.Session = calls.RandomHex(16)
	ctx, cancel := context.WithCancelCause(ctx)
	c := &client{s: s, who: who, ctx: ctx, pending: map[string]bool{}, processes: map[handle]*process{}, initialized: true}
	none := newOutbox(nil)
	none.Fail(errGone)
	go none.Run()
	c.out.Store(none)
	var once sync.Once
	c.environment = &environment{attached: make(chan struct{}), end: func() {
		once.Do(func() {
			s.Environment.mu.Lock()
			delete(s.Environment.sessions, who.Session)
			s.Environment.mu.Unlock()
			c.mu.Lock()
			c.environment.over = true
			c.mu.Unlock()
			cancel(errGone)
			c.all.Wait()
			c.releaseEnded()
			if s.Ended != nil {
				s.Ended(who.Principal, who.Session)
			}
		})
	}}
	return c
}

// detach ends the session with its connection, unless it waits for the client to come back.
func (c *client) detach(out *jsonrpc.Outbox, retain time.Duration, ending bool) {
	x := c.environment
	out.Fail(errGone)
	func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if x.attached == nil {
			x.attached = make(chan struct{})
		}
		clear(c.pending) // no answer to them can be sent any more
		if retain > 0 && !ending {
			x.expiry = time.AfterFunc(retain, x.end)
		}
	}()
	x.attaches.Unlock()
	if retain == 0 || ending {
		x.end()
	}
}

// EndSessions ends the sessions that wait for their clients.
func (e *Environment) EndSessions() {
	for {
		var one *client
		e.mu.Lock()
		for _, one = range e.sessions {
			break
		}
		e.mu.Unlock()
		if one == nil {
			return
		}
		one.environment.end()
	}
}

// info returns what a client may know of the environment. Of its capabilities, Codex is told those that it asks for before it uses them.
func (s *Server) info() map[string]any {
	shell, tmp := s.Environment.Shell, edit.URI("/tmp")
	return map[string]any{
		"shell": map[string]string{"name": path.Base(shell), "path": shell}, "cwd": edit.URI(s.Dir), "userHomeDir": edit.URI(job.Home),
		"tempDir": tmp, "temporaryDirectories": []string{tmp}, "prependPathDirs": []string{}, "platformOs": "linux",
		"executorVersion": s.Version, "providerId": "corral", "capabilities": map[string]bool{"networkProxyLaunch": true},
	}
}

// environmentMethods are all methods but initialize and fs/*.
var environmentMethods = map[string]func(c *client, m *message) *jsonrpc.Error{
	"process/start":          (*client).startProcess,
	"process/write":          (*client).writeProcess,
	"process/signal":         (*client).signalProcess,
	"process/terminate":      (*client).terminateProcess,
	"process/read":           (*client).readProcess,
	"environment/info":       answering((*Server).info),
	"environment/status":     answering(func(*Server) map[string]any { return map[string]any{"status": "ready"} }),
	"environmentConfig/read": answering((*Server).clientConfig),
}

// answering returns a method whose result is that of a function.
func answering(result func(s *Server) map[string]any) func(c *client, m *message) *jsonrpc.Error {
	return func(c *client, m *message) *jsonrpc.Error {
		c.reply(m.id, result(c.s))
		return nil
	}
}

// clientConfig says that this environment has no configuration for its client.
func (s *Server) clientConfig() map[string]any {
	none := map[string]any{"layers": []any{}, "cloudInsertionIndex": 0}
	host, _ := os.Hostname() // "" is one
	return map[string]any{
		"userHomeDir": edit.URI(job.Home), "codexHomeDir": edit.URI(job.Home + "/.codex"), "hostname": host,
		"config": none, "requirements": none,
	}
}

// serveEnvironment answers a request, or starts what will answer it.
func (c *client) serveEnvironment(m *message) *jsonrpc.Error {
	if m.method == "initialize" {
		return jsonrpc.Errorf(jsonrpc.CodeRequest, "Already initialized")
	}
	serve := environmentMethods[m.method]
	if name, ok := strings.CutPrefix(m.method, filePrefix); ok {
		if _, ok := fileMethods[name]; ok {
			serve = (*client).serveFile
		}
	}
	if serve != nil {
		return c.recordFault(environmentFamily, m, serve(c, m))
	}
	return jsonrpc.Errorf(jsonrpc.CodeMethod, "unknown method `%s`", text.Line(m.method, maxWord))
}

// path returns the absolute path of the URI in raw, the value of the field name. It is as the client wrote it: where links and .. lead, the
// kernel says.
func (r *reader) path(name string, raw json.RawMessage) string {
	s := r.text(name, raw)
	if r.fault != nil || raw == nil {
		return ""
	}
	absolute, err := pathOf(s)
	if err != nil {
		r.fail(jsonrpc.Errorf(jsonrpc.CodeParams, "`%s`: %s: %v", name, quoted(text.Cut(s, maxWord)), err))
	}
	return absolute
}

func pathOf(uri string) (string, error) {
	u, err := url.Parse(uri)
	switch {
	case err != nil:
		return "", errors.New("not a URI")
	case u.Scheme != "file" || u.Host != "" && u.Host != "localhost" || u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("must be file:///PATH of this environment")
	case !strings.HasPrefix(u.Path, "/") || strings.IndexByte(u.Path, 0) >= 0 || !utf8.ValidString(u.Path):
		return "", errors.New("must have an absolute path in UTF-8")
	}
	return u.Path, nil
}

// bad returns the fault of a request, which is one of its parameters.
func (r *reader) bad() *jsonrpc.Error {
	f := *r.fault
	if f.Code == jsonrpc.CodeRequest {
		f.Code = jsonrpc.CodeParams
	}
	return &f
}

// bad returns the fault of a parameter that is well-formed and not accepted.
func bad(format string, values ...any) *jsonrpc.Error {
	return jsonrpc.Errorf(jsonrpc.CodeParams, format, values...)
}

// discover lets the server serve the repository that the first of the paths lies in, see Environment.Find. command says that they are of a
// command: what the model names later finds none.
func (c *client) discover(l *launch, command bool, paths ...string) {
	c.mu.Lock()
	begun := c.environment.begun
	c.environment.begun = begun || command
	c.mu.Unlock()
	if begun || c.s.Environment.Find == nil || len(paths) == 0 || c.repoOf(l, paths[0]).ID != "" || !c.s.Environment.Find(paths[0]) {
		return
	}
	l.access = c.s.access()
	l.engine = l.access.Engine
	c.mu.Lock()
	defer c.mu.Unlock()
	c.environment.begun = true
}

// note keeps a refusal for the model, which is told with its next command.
func (c *client) note(format string, values ...any) {
	const most = 8
	line := text.Line(fmt.Sprintf(format, values...), maxSaid)
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.environment; len(x.notes) < most {
		x.notes = append(x.notes, line)
	}
}

func (c *client) takeNotes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	notes := c.environment.notes
	c.environment.notes = nil
	return notes
}
