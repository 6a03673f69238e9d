// Package rpc serves command/exec and process/* over JSON-RPC: clients start programs in jails, and feed, resize and end
// them with messages. The protocol is that of the Codex app-server; a client of its command/exec works here unchanged.
//
// One Server serves all connections; package rpc/transport connects clients to it (see Conn). Each connection has its own
// processes. A process is a job: job.Engine authorizes, logs and runs it. The policy restricts a client's request like
// any other request, and no request leaves the jail: dangerFullAccess uses what the operator maps it to, or is refused.
//
//   - One goroutine reads a connection. A process is registered under its id before the next message is read, so a client
//     may send exec and requests that refer to it without waiting. Messages are parsed strictly: valid UTF-8, no duplicate
//     keys, at most 64 levels of nesting, ids that are strings or integers. Unknown fields are ignored, and null equals an
//     absent field.
//   - Answers are sent one at a time, in the order in which they are made. The response to command/exec, and
//     process/exited, follow all output of their process, and are sent after the last process of the job has ended.
//   - A client that does not read stalls its processes, by their pipes, and makes the server buffer at most about 256 KiB
//     of their output. Requests it sends meanwhile are answered when it reads; if many answers wait, no more requests are
//     read.
//   - Output kept for an answer, and input that waits for its process, share one budget per server.
//   - When a connection ends, all its processes are ended.
//   - Each request to start a process is one line of the diagnostic log and, with a Tracer, one span.
//
// Text in answers is UTF-8; invalid bytes become U+FFFD. Streamed output is base64 of the raw bytes. Output is neither
// stored nor redacted: it may not be text.
package rpc

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"

	"corral/internal/calls"
	"corral/internal/ratelimit"
	"corral/internal/text"
	"corral/job"
)

// DefaultBudget is the default of Server.Budget.
const DefaultBudget = 256 << 20

// An Engine authorizes and runs jobs; *job.Engine implements it.
type Engine interface {
	// Run decides on r, runs its job if it is allowed, and returns the record of it. out receives the output.
	Run(ctx context.Context, r *job.Request, out job.Output, h job.Hooks) (*job.Record, error)
}

// A Repo is a served repository.
type Repo struct {
	ID   string // id in the policy
	Path string // absolute and clean
	// Allows reports whether the operator allows a host, or a pattern of hosts, to its jobs; nil: the operator allows none.
	Allows func(host string) bool
}

// A Server serves clients. It must not be copied, and its fields must not be changed after the first call of Serve; see Replace.
type Server struct {
	Access // at the start
	// Dir is the default directory of a command, and the base of relative ones. It must be absolute and clean.
	Dir string
	// Home is reported to clients as codexHome. It must be absolute; "" means Dir. Nothing is read from it.
	Home    string
	Version string // of corral, for the userAgent
	// Budget is the maximum number of bytes that all connections together hold of output that is not streamed, and of
	// input that waits for its process; 0 means DefaultBudget.
	Budget int64
	// Shared is set if clients can be of several principals. Then one of them holds at most as much of Budget as it leaves
	// free, so that there is always some left for the others.
	Shared bool
	// Ended, if not nil, is called after a connection has ended, with the Principal and Session of its requests.
	Ended func(principal, session string)
	// Log receives one line per request to start a process; nil disables it.
	Log *slog.Logger
	// Tracer receives each such call; nil disables it.
	Tracer calls.Tracer

	// Current returns a caller with what its principal may use now, and false if its credentials have been revoked. It is called
	// before each process is started; nil lets callers keep what they had when they connected.
	Current func(who Caller) (Caller, bool)
	// Environment is set on a server of the environment protocol, see ServeEnvironment.
	Environment *Environment

	now       atomic.Pointer[Access]
	held      ratelimit.Shares // the budget in use, in bytes, by principal
	processes atomic.Int64     // running processes of all connections
}

// An Access is what requests may use. It is replaced as a whole.
type Access struct {
	Engine  Engine
	Repos   []Repo
	Removed []Repo // served earlier, for errors
	// FullAccess runs requests with the sandbox policy dangerFullAccess, External those with externalSandbox, under the
	// rules that the operator maps them to. nil refuses such requests.
	FullAccess, External Engine
}

// Replace replaces the Access of s for the requests that come from now on. Processes keep running.
func (s *Server) Replace(a Access) { s.now.Store(&a) }

// access returns what a request may use now.
func (s *Server) access() *Access {
	if a := s.now.Load(); a != nil {
		return a
	}
	return &s.Access
}

// locate returns the innermost repository that contains dir, and dir relative to it. It compares names only; the
// supervisor checks that no symbolic link leads out of the repository.
func (a *Access) locate(who *Caller, dir string) (repo Repo, relative string, ok bool) {
	return innermost(a.Repos, who, dir)
}

// usable returns a clause that names the repositories that a caller may use, the first three of them; "" if there are none.
func (a *Access) usable(who *Caller) string {
	var paths []string
	for _, r := range a.Repos {
		if who.mayUse(r.ID) {
			paths = append(paths, quoted(text.Cut(r.Path, maxWord)))
		}
	}
	switch {
	case len(paths) == 0:
		return ""
	case len(paths) > 3:
		return fmt.Sprintf(": use a directory in %s or one of %d more", strings.Join(paths[:3], ", "), len(paths)-3)
	}
	return ": use a directory in " + strings.Join(paths, " or ")
}

func innermost(repos []Repo, who *Caller, dir string) (repo Repo, relative string, ok bool) {
	for _, r := range repos {
		if !who.mayUse(r.ID) || len(r.Path) < len(repo.Path) {
			continue
		}
		if rest, in := within(r.Path, dir); in {
			repo, relative, ok = r, rest, true
		}
	}
	return repo, relative, ok
}

// within returns path relative to dir, and whether dir contains it. Both must be absolute and clean.
func within(dir, path string) (relative string, ok bool) {
	if path == dir {
		return "", true
	}
	return strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// absolute resolves a directory that a client named; "" is the server's own.
func (s *Server) absolute(dir string) string {
	if filepath.IsAbs(dir) {
		return filepath.Clean(dir)
	}
	return filepath.Join(s.Dir, dir)
}

func (s *Server) log(ctx context.Context, message string, args ...any) {
	if s.Log != nil {
		s.Log.ErrorContext(ctx, message, args...)
	}
}

func (s *Server) warn(ctx context.Context, message string, args ...any) {
	if s.Log != nil {
		s.Log.WarnContext(ctx, message, args...)
	}
}

func (s *Server) userAgent(client string) string {
	agent := fmt.Sprintf("corral/%s (linux)", cmp.Or(s.Version, "0"))
	if client != "" {
		agent += " " + client
	}
	return agent
}
