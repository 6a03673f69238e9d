// Package client is a front-end's side of the supervisor: it runs jobs over a connection.
//
// It needs no privilege. It makes the pipes a job's standard streams are, packs arguments and environment, and turns the
// supervisor's answer into a job.Result. It imports little, for `corral` starts with it in a millisecond.
package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/isolate/wire"
	"corral/job"
)

// DefaultSocket is where an installed supervisor listens.
const DefaultSocket = "/run/corral/corral.sock"

// A Client is a connection to a supervisor. Its methods may be called by several goroutines at once.
type Client struct {
	conn *wire.Conn
	// ByPath names repositories to the supervisor by their path: it is one that root started for them. Otherwise the
	// client opens the directory and passes the descriptor. Set it before the first Run.
	ByPath bool
	// Commons are the git directories that repositories are worktrees of, both by their paths, as such a supervisor was
	// started for them; with ByPath. Set it before the first Run.
	Commons map[string]string
	// Owners are the users whom repositories must belong to, by path; one without an entry may be anybody's. A supervisor that
	// root started for its repositories compares them itself. Set it before the first Run.
	Owners map[string]uint32
	// Account is with whose rights root opens repositories; nil is this process's own. Set it before the first Run.
	Account *directory.Account
	// Vet, if there is one, refuses repositories by their path. Set it before the first Run.
	Vet func(repo string) error

	mu        sync.Mutex
	next      uint32           // guarded by mu: the last tag
	pending   map[uint32]*call // guarded by mu: by tag
	receiving bool             // guarded by mu: somebody who waits does, for all
	failure   error            // guarded by mu: why the connection ended
}

// Dial connects to the supervisor that listens on socket; "" is DefaultSocket. Errors wrap job.ErrUnavailable.
func Dial(socket string) (*Client, error) {
	if socket == "" {
		socket = DefaultSocket
	}
	conn, err := wire.Dial(socket)
	if err != nil {
		return nil, fmt.Errorf("%w at %s: %w", job.ErrUnavailable, socket, reason(err))
	}
	return New(conn), nil
}

// reason is the kernel's word, without the address that the caller says anyway.
func reason(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// New makes a client of an open connection, which it takes over.
func New(conn *wire.Conn) *Client {
	return &Client{conn: conn, pending: map[uint32]*call{}}
}

// Close ends the connection, and with it every job that was started over it.
func (c *Client) Close() error {
	err := c.conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail(os.ErrClosed)
	return err
}

// Hello asks the supervisor who it is.
func (c *Client) Hello() (wire.Welcome, error) {
	a, err := c.exchange(context.Background(), func(tag uint32) []byte { return wire.Empty(wire.OpHello, tag) })
	if err != nil {
		return wire.Welcome{}, err
	}
	wire.CloseAll(a.files)
	return wire.ReadWelcome(a.body)
}

// all collects the answers to a request until the End.
func all[T any](c *Client, request wire.Op, read func([]byte) (T, error)) ([]T, error) {
	k, err := c.register()
	if err != nil {
		return nil, err
	}
	defer c.unregister(k)
	if err := c.send(wire.Empty(request, k.tag)); err != nil {
		return nil, err
	}
	var list []T
	for {
		a, err := c.await(k)
		if err != nil {
			return nil, err
		}
		wire.CloseAll(a.files)
		if a.op == wire.OpEnd {
			return list, nil
		}
		one, err := read(a.body)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
}

// List returns the running jobs: the caller's own, and for root all.
func (c *Client) List() ([]wire.Entry, error) { return all(c, wire.OpList, wire.ReadEntry) }

// Facts returns what the supervisor knows of its host.
func (c *Client) Facts() ([]wire.Fact, error) { return all(c, wire.OpFacts, wire.ReadFact) }

// A Run is a job under way.
type Run struct {
	c        *Client
	call     *call
	terminal func(*os.File)
}

// Start asks for a job. terminal is called with the master of its terminal, if spec asks for one. A Run must be waited
// for. stdio is taken over.
func (c *Client) Start(spec job.Spec, stdio job.Stdio, terminal func(master *os.File)) (*Run, error) {
	defer wire.CloseAll([]*os.File{stdio.Stdin, stdio.Stdout, stdio.Stderr})
	if err := fits(spec); err != nil {
		return nil, err
	}
	m := message(spec)
	payload, err := wire.NewPayload(spec.Args, spec.Env, spec.Files...)
	if err != nil {
		return nil, &job.Refusal{Step: "payload", Message: err.Error()}
	}
	defer payload.Close()
	files := []*os.File{payload}
	if spec.Terminal == (job.Size{}) {
		files = append(files, stdio.Stdout, stdio.Stderr)
		if stdio.Stdin != nil {
			m.Flags |= wire.FlagStdin
			files = append(files, stdio.Stdin)
		}
	} else {
		m.Flags |= wire.FlagTerminal
	}
	if spec.Session == "" {
		dir, err := c.openRepo(spec.Repo)
		if err != nil {
			return nil, err
		}
		if dir != nil {
			defer dir.Close()
			m.Flags |= wire.FlagRepo
			files = append(files, dir)
		}
	}
	if spec.Session == "" && spec.Workspace != job.NoRepo { // a session has its own
		path, dir, flag := c.common(spec.Repo)
		m.Common = path
		m.Flags |= flag
		if dir != nil {
			defer dir.Close()
			files = append(files, dir)
		}
	}
	k, err := c.register()
	if err != nil {
		return nil, err
	}
	if err := c.send(m.Append(k.tag), files...); err != nil {
		c.unregister(k)
		return nil, err
	}
	return &Run{c: c, call: k, terminal: terminal}, nil
}

func message(spec job.Spec) wire.Run {
	l := spec.Limits
	m := wire.Run{
		Memory: l.Memory, MilliCPUs: l.MilliCPUs, PIDs: l.PIDs, Wall: int64(l.Wall), Tmp: l.Tmp, TmpInodes: l.TmpInodes,
		Disk: l.Disk, Inodes: l.Inodes, FileSize: l.FileSize, OpenFiles: l.OpenFiles,
		Rows: spec.Terminal.Rows, Cols: spec.Terminal.Cols, Profile: spec.Profile, Repo: spec.Repo, Dir: spec.Dir,
		Claim: spec.Claim,
	}
	switch spec.Workspace {
	case job.ReadOnly:
		m.Flags |= wire.FlagReadOnly
	case job.Overlay:
		m.Flags |= wire.FlagOverlay
	case job.NoRepo:
		m.Flags |= wire.FlagNoRepo
	case job.Direct:
	}
	switch spec.Protect {
	case job.ProtectHooks:
		m.Flags |= wire.FlagProtectHooks
	case job.ProtectAll:
		m.Flags |= wire.FlagProtectAll
	case job.ProtectNone:
	}
	m.Session, m.Tool = spec.Session, string(spec.Tool)
	return m
}

// fits refuses what a message has no room for: cut, it would name something else.
func fits(spec job.Spec) error {
	for _, f := range []struct {
		step, value string
		most        int
	}{{"repo", spec.Repo, wire.MaxPath}, {"cwd", spec.Dir, wire.MaxPath}, {"profile", spec.Profile, wire.MaxName}} {
		if len(f.value) > f.most {
			return &job.Refusal{
				Step: f.step, Errno: int(unix.ENAMETOOLONG),
				Message: fmt.Sprintf("%s %.40q… is not known: it has %d bytes, more than %d", f.step, f.value, len(f.value), f.most),
			}
		}
	}
	return nil
}

// Signal sends a signal to the job's first process or, with everyone, to all of its processes.
func (r *Run) Signal(number int, everyone bool) error {
	return r.c.conn.Send(wire.Signal{Number: uint8(number), Everyone: everyone}.Append(r.call.tag))
}

// Kill ends the job as a whole.
func (r *Run) Kill() error { return r.Signal(0, true) }

// Wait waits for the job's end.
func (r *Run) Wait() (job.Result, error) {
	defer r.c.unregister(r.call)
	for {
		a, err := r.c.await(r.call)
		if err != nil {
			return job.Result{Status: job.Lost}, err
		}
		if a.op == wire.OpTerminal && len(a.files) == 1 && r.terminal != nil {
			r.terminal(a.files[0])
			continue
		}
		wire.CloseAll(a.files)
		if a.op != wire.OpResult {
			continue
		}
		m, err := wire.ReadResult(a.body)
		if err != nil {
			return job.Result{}, err
		}
		return result(m)
	}
}

// Run implements job.Runner.
func (c *Client) Run(ctx context.Context, spec job.Spec, stdio job.Stdio) (job.Result, error) {
	r, err := c.Start(spec, stdio, stdio.Terminal)
	if err != nil {
		return job.Result{}, err
	}
	if stdio.Started != nil {
		stdio.Started(r)
	}
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { _ = r.Kill() })
		defer stop()
	}
	return r.Wait()
}

// result turns the wire's words into the job's.
func result(m wire.Result) (job.Result, error) {
	r, err := m.Became()
	if err == nil && m.Sensitive != "" {
		r.Sensitive = strings.Split(strings.TrimSuffix(m.Sensitive, "\x00"), "\x00")
	}
	return r, err
}
