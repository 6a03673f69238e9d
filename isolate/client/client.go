// Package client is a front-end's interface to the supervisor: it runs jobs over a connection.
//
// It needs no privileges. It creates the pipes of a job's standard streams, encodes arguments and environment, and
// converts the supervisor's reply to a job.Result. It has few imports, since `corral` starts with it in a millisecond.
package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/isolate/wire"
	"corral/job"
)

// DefaultSocket is the path of an installed supervisor's socket.
const DefaultSocket = "/run/corral/corral.sock"

// A Client is a connection to a supervisor. Its methods may be called from several goroutines.
type Client struct {
	conn *wire.Conn
	// ByPath makes the client send repositories' paths: for a supervisor that root started for these repositories.
	// Otherwise the client opens the directory and passes the descriptor. Set it before the first Run.
	ByPath bool
	// Commons maps the path of each repository that is a worktree to the path of its common git directory, as passed to
	// such a supervisor; used with ByPath. Set it before the first Run.
	Commons map[string]string
	// Owner returns the user that must own a repository, by its path; with known false, or if Owner is nil, it may have any owner.
	// With ByPath the supervisor checks owners itself. Set it before the first Run.
	Owner func(path string) (uid uint32, known bool)
	// Account is the account with whose rights root opens repositories; nil means this process's own. Set it before the
	// first Run.
	Account *directory.Account
	// Vet, if set, may refuse a repository by its path. Set it before the first Run.
	Vet func(repo string) error

	mu        sync.Mutex
	next      uint32           // guarded by mu: the last tag used
	pending   map[uint32]*call // guarded by mu: by tag
	receiving bool             // guarded by mu: a waiting goroutine receives for all
	failure   error            // guarded by mu: why the connection ended
	record    *job.Recording   // guarded by mu: what the supervisor records; nil: not asked yet
	stalled   map[string]bool  // guarded by mu: jobs whose command line is being read
}

// Dial connects to the supervisor at socket; "" means DefaultSocket. Errors wrap job.ErrUnavailable.
func Dial(socket string) (*Client, error) {
	if socket == "" {
		socket = DefaultSocket
	}
	return DialAt(socket, socket)
}

// DialAt connects to the socket at path, which errors call name.
func DialAt(path, name string) (*Client, error) {
	conn, err := wire.Dial(path)
	if err != nil {
		return nil, Unavailable(name, err)
	}
	return New(conn), nil
}

// Unavailable returns the error of Dial for a socket that cannot be connected to because of err.
func Unavailable(socket string, err error) error {
	return fmt.Errorf("%w at %s: %w", job.ErrUnavailable, socket, reason(err))
}

// reason returns the errno in err, without the address, which the caller adds; or err if there is none.
func reason(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// New returns a client that uses and owns conn.
func New(conn *wire.Conn) *Client {
	return &Client{conn: conn, pending: map[uint32]*call{}, stalled: map[string]bool{}}
}

// Close closes the connection, which ends every job that was started over it.
func (c *Client) Close() error {
	err := c.conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail(os.ErrClosed)
	return err
}

// Socket returns the connection for a child of this process, which makes no request while the child has it. The caller closes it.
func (c *Client) Socket() (socket *os.File, err error) {
	err = c.conn.Hand(func(fd int) error {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err == nil {
			socket = os.NewFile(uintptr(dup), "supervisor")
		}
		return err
	})
	return socket, err
}

// Hello returns the supervisor's Welcome.
func (c *Client) Hello() (wire.Welcome, error) { return c.hello(context.Background()) }

func (c *Client) hello(ctx context.Context) (wire.Welcome, error) {
	a, err := c.exchange(ctx, wire.Empty(wire.OpHello))
	if err != nil {
		return wire.Welcome{}, err
	}
	wire.CloseAll(a.files)
	w, err := wire.Decode[wire.Welcome](a.body)
	if err == nil {
		c.mu.Lock()
		c.record = &w.Record
		c.mu.Unlock()
	}
	return w, err
}

// all sends a request and collects its answers until OpEnd.
func all[T any](c *Client, request wire.Op, read func([]byte) (T, error)) ([]T, error) {
	return allWith(c, request, func(a answer) (T, error) {
		wire.CloseAll(a.files)
		return read(a.body)
	})
}

// allWith is all for answers with files, which read takes over.
func allWith[T any](c *Client, request wire.Op, read func(answer) (T, error)) ([]T, error) {
	k, err := c.register()
	if err != nil {
		return nil, err
	}
	defer c.unregister(k)
	if err := c.send(wire.Encode(wire.Empty(request), k.tag)); err != nil {
		return nil, err
	}
	var list []T
	for {
		a, err := c.await(k)
		if err != nil {
			return nil, err
		}
		if a.op == wire.OpEnd || a.op == wire.OpAnswer {
			wire.CloseAll(a.files)
		}
		if a.op == wire.OpEnd {
			return list, nil
		}
		if a.op == wire.OpAnswer {
			return nil, failed(a.body)
		}
		if a.op == wire.OpResult {
			return nil, refusal(a)
		}
		one, err := read(a)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
}

// List returns the caller's running jobs, and for root those of all users.
func (c *Client) List() ([]wire.Entry, error) { return all(c, wire.OpList, wire.Decode[wire.Entry]) }

// Denials returns the requests of the caller that were denied or refused lately, for root those of all users, the oldest first.
func (c *Client) Denials() ([]wire.Denial, error) {
	return all(c, wire.OpDenials, wire.Decode[wire.Denial])
}

// Facts returns the host's properties as found by the supervisor.
func (c *Client) Facts() ([]wire.Fact, error) { return all(c, wire.OpFacts, wire.Decode[wire.Fact]) }

// A Run is a running job.
type Run struct {
	c        *Client
	call     *call
	terminal func(*os.File)
	spec     *job.Spec
	begun    time.Time
}

// Start requests a job. terminal is called with the master of its terminal, if spec requests one. Start closes the files
// of stdio, also on error. The caller must call Wait.
func (c *Client) Start(spec job.Spec, stdio job.Stdio, terminal func(master *os.File)) (*Run, error) {
	defer wire.CloseAll([]*os.File{stdio.Stdin, stdio.Stdout, stdio.Stderr})
	if err := checkLengths(spec); err != nil {
		return nil, err
	}
	begun := time.Now()
	var err error
	if spec.Claim, err = c.claim(context.Background(), spec); err != nil {
		return nil, err
	}
	m := message(spec)
	given, env := addGitSettings(spec) // no part of the claim: the job's user knows them
	payload, err := wire.NewPayload(spec.Args, env, given...)
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
	if dir := c.addWorktrees(&m, spec); dir != nil {
		defer dir.Close()
		files = append(files, dir)
	}
	k, err := c.register()
	if err != nil {
		return nil, err
	}
	if err := c.send(wire.Encode(&m, k.tag), files...); err != nil {
		c.unregister(k)
		return nil, err
	}
	return &Run{c: c, call: k, terminal: terminal, spec: &spec, begun: begun}, nil
}

func message(spec job.Spec) wire.Run {
	m := wire.Run{
		Limits: spec.Limits,
		Rows:   spec.Terminal.Rows, Cols: spec.Terminal.Cols, Profile: spec.Profile, Repo: spec.Repo, Dir: spec.Dir,
		Claim: spec.Claim, Network: spec.Network, Bounds: spec.Bounds,
	}
	switch {
	case spec.Workspace == job.NoRepo:
		m.Flags |= wire.FlagNoRepo
	case spec.Workspace == job.ReadOnly || spec.ReadOnly:
		m.Flags |= wire.FlagReadOnly
	case spec.Workspace == job.Overlay:
		m.Flags |= wire.FlagOverlay
	}
	switch spec.Protect {
	case job.ProtectHooks:
		m.Flags |= wire.FlagProtectHooks
	case job.ProtectAll:
		m.Flags |= wire.FlagProtectAll
	case job.ProtectNone:
	}
	if spec.Usual {
		m.Flags |= wire.FlagUsual
	}
	m.Session, m.Tool = spec.Session, string(spec.Tool)
	return m
}

// checkLengths refuses values that exceed a message's maximum: truncated, they would name something else.
func checkLengths(spec job.Spec) error {
	for _, f := range []struct {
		step, value string
		limit       int
	}{
		{"repo", spec.Repo, wire.MaxPath},
		{"cwd", spec.Dir, wire.MaxPath},
		{"profile", spec.Profile, wire.MaxName},
		{"network", spec.Network, wire.MaxNetwork},
		{"bounds", string(spec.Bounds), job.MaxBounds},
	} {
		if len(f.value) > f.limit {
			return &job.Refusal{
				Step: f.step, Errno: int(unix.ENAMETOOLONG),
				Message: fmt.Sprintf("%s %.40q… has %d bytes, maximum %d", f.step, f.value, len(f.value), f.limit),
			}
		}
	}
	return nil
}

// Signal sends a signal to the job's first process or, with everyone, to all of its processes.
func (r *Run) Signal(number int, everyone bool) error {
	return r.c.conn.Send(wire.Encode(&wire.Signal{Number: uint8(number), Everyone: everyone}, r.call.tag))
}

// Kill ends the job: all its processes get SIGTERM, and SIGKILL when its Limits.KillAfter has passed. A second call kills them at once.
func (r *Run) Kill() error { return r.Signal(0, true) }

// End is Kill by another first signal, after which the job has the result of any other if it ends in time.
func (r *Run) End(number int) error {
	return r.c.conn.Send(wire.Encode(&wire.Signal{Number: uint8(number), Everyone: true, Ends: true}, r.call.tag))
}

// Wait waits for the job to end and returns its result.
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
		m, err := wire.Decode[wire.Result](a.body)
		if err != nil {
			return job.Result{}, err
		}
		done, err := result(m)
		if err == nil && done.Signal != 0 { // git that ends by itself removes its locks
			done.GitLocks = locksLeft(r.spec, r.begun)
		}
		return done, err
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

// result converts the supervisor's Result, including what the supervisor does not read: the sensitive paths, and what the job
// reached.
func result(m wire.Result) (job.Result, error) {
	r, err := m.JobResult()
	if err != nil {
		return r, err
	}
	r.Sensitive, r.Mounts = paths(m.Sensitive), paths(m.Mounts)
	r.Network = NetworkUse(m.Reached)
	return r, nil
}

// paths splits a list of paths, each terminated by NUL.
func paths(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(list, "\x00"), "\x00")
}
