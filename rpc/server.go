// Package rpc serves command/exec and process/* over JSON-RPC: programs run in jails, started, fed, resized and ended by
// messages. The protocol is that of the Codex app-server; a client of its command/exec works here unchanged.
//
// A Server is one for all connections; package rpc/transport brings it texts (see Conn), and each connection has its own
// processes. A process is a job: job.Engine decides, logs and runs it. What a client may ask for is narrowed by the policy
// like every other request, and no request leaves the jail: dangerFullAccess is what the operator maps it to, or refused.
//
//   - One goroutine reads a connection. A process is known by its id before the next message is read, so that exec and
//     what follows it may come in one burst. Messages are read strictly: UTF-8, no key twice, at most 64 levels, ids that
//     are strings or whole numbers; what is not known is ignored, and null is as good as absent.
//   - Answers leave in the order in which they are made, one at a time. The answer to command/exec, and process/exited,
//     come after all output of their process, and when no process of the job is left.
//   - A client that does not read stalls its processes, by their pipes, and holds at most some 256 KiB of their output
//     here. What it asks meanwhile is answered when it reads; with much of that waiting, it is not read from either.
//   - Output that is kept for the answer, and input that waits for its process, share one budget of the server.
//   - The end of a connection ends all its processes.
//   - A process that a client starts, or wants to, is one line of the log and, where there is a Tracer, one span.
//
// Text in answers is UTF-8, with U+FFFD for what is none. Output that is streamed is bytes, in base64. Nothing of it is
// stored, and nothing in it is hidden: it may be no text at all.
package rpc

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"

	"corral/internal/calls"
	"corral/job"
)

// DefaultBudget is how many bytes a Server holds of output and input, see Server.Budget.
const DefaultBudget = 256 << 20

// An Engine takes a request through its life; *job.Engine is one.
type Engine interface {
	Run(ctx context.Context, r *job.Request, out job.Output, watch job.Watch) (*job.Record, error)
}

// A Repo is a repository that is served.
type Repo struct {
	ID   string // as the policy knows it
	Path string // absolute and clean
}

// A Server serves clients. It must not be copied, and its fields not be changed after the first Serve.
type Server struct {
	Engine Engine
	Repos  []Repo
	// Dir is where a command runs whose client names no directory, and what relative ones are relative to: absolute and
	// clean.
	Dir string
	// Home is the codexHome that clients are told of, an absolute path; "" is Dir. Nothing is read from there.
	Home    string
	Version string // of corral, for the userAgent
	// Budget is how many bytes all connections together may hold of output that is not streamed, and of input that waits
	// for its process; 0 is DefaultBudget.
	Budget int64
	// FullAccess runs what asks for the sandbox policy dangerFullAccess, External what asks for externalSandbox: as an
	// Engine with the rules that the operator maps them to. nil refuses.
	FullAccess, External Engine
	// Ended is called when a connection has ended, with what its requests had as Principal and Session; nil is nothing to be
	// told.
	Ended func(principal, session string)
	// Log takes one line per process that a client starts or wants to; nil drops them.
	Log *slog.Logger
	// Tracer is told of each such call; nil is nobody to be told.
	Tracer calls.Tracer

	held      atomic.Int64 // of the budget
	processes atomic.Int64 // of all connections
}

func (s *Server) budget() int64 { return cmp.Or(s.Budget, DefaultBudget) }

// hold takes n bytes of the budget, or reports that they are not to be had.
func (s *Server) hold(n int) bool {
	if s.held.Add(int64(n)) <= s.budget() {
		return true
	}
	s.release(n)
	return false
}

func (s *Server) release(n int) { s.held.Add(int64(-n)) }

// place returns the repository that dir lies in, as its name says, and dir relative to that. Of two, one within the
// other, it is the inner one. That no link leads out of it is the supervisor's to see.
func (s *Server) place(who *Caller, dir string) (repo Repo, relative string, ok bool) {
	for _, r := range s.Repos {
		if !who.mayUse(r.ID) || len(r.Path) < len(repo.Path) {
			continue
		}
		if rest, in := within(r.Path, dir); in {
			repo, relative, ok = r, rest, true
		}
	}
	return repo, relative, ok
}

// within says where path is below dir; both are absolute and clean.
func within(dir, path string) (relative string, ok bool) {
	if path == dir {
		return "", true
	}
	return strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// absolute is a client's directory, "" for the server's own.
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

func (s *Server) userAgent(client string) string {
	agent := fmt.Sprintf("corral/%s (linux)", cmp.Or(s.Version, "0"))
	if client != "" {
		agent += " " + client
	}
	return agent
}

// randomHex returns n random bytes.
func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails, or ends the program: crypto/rand
	return hex.EncodeToString(b)
}
