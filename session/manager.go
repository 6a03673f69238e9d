// Package session keeps the sessions that a front-end's clients have with the supervisor.
//
// A Manager provides them to the jobs of package job's Engine. A client has one for each repository and kind: with a root
// file system of its own, or with an overlay over the repository alone. It is opened when the first job needs it, and
// those that ask while it is being opened wait for the same one. Any number of jobs use it at once.
//
// A session ends when its client's does (End), when no job has used it for some time, when its principal opens too many
// others, and with the Manager. That is an orderly end: what jobs changed in a repository behind an overlay is kept for
// review, and the log says under which name. The rest of a layer is gone with its session. A client that comes back after
// its overlay was put aside for being idle gets the same one again. When the front-end or its connection dies, nothing is
// kept: that is the supervisor's to do.
//
// A session that the supervisor does not know any more is forgotten when it is returned, and the next job has a new one.
// Whoever had one before is told that it began anew.
//
// Sessions are bounded for each principal and in all. The package starts no job and looks at no file.
package session

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"corral/job"
)

// Bounds of Options.
const (
	DefaultPerPrincipal = 16
	DefaultInAll        = 128
	// Forever is how long the supervisor is to wait for a job of a session that does not end for being idle.
	Forever = 24 * time.Hour
)

const (
	// openTime is how long it may take to open a session.
	openTime = time.Minute
	// backstop is how much later than a Manager the supervisor ends an idle session.
	backstop = time.Minute
	// maxFormer is how many ended sessions are remembered.
	maxFormer = 1024
)

// Options say what a Manager keeps.
type Options struct {
	Sessions job.Sessions
	// Root is what sessions with a root file system are opened with: Image, Disk and Inodes of it.
	Root job.SessionSpec
	// RootIdle and OverlayIdle are after how long without a job a session of that kind ends; 0 is never.
	RootIdle, OverlayIdle time.Duration
	PerPrincipal          int          // sessions of one principal at once; 0 is DefaultPerPrincipal
	InAll                 int          // sessions at once; 0 is DefaultInAll
	Log                   *slog.Logger // nil drops it
	// After calls f in a goroutine after d, unless stop is called first and returns true; nil is time.AfterFunc.
	After func(d time.Duration, f func()) (stop func() bool)
}

// A Manager has the sessions of a front-end's clients. Its methods may be called by several goroutines at once.
type Manager struct {
	o    Options
	ctx  context.Context // ends with the Manager
	stop context.CancelFunc
	work sync.WaitGroup // goroutines that open or close

	mu     sync.Mutex
	all    map[key]*entry // guarded by mu
	count  int            // guarded by mu: of all, and of those that are being closed
	turn   uint64         // guarded by mu: rises with each use
	former map[key]string // guarded by mu: that have ended, with the layer that can be used again, or ""
	closed bool           // guarded by mu
}

// A key is whose session it is, and of which kind.
type key struct {
	principal, client, repo, profile string
	workspace                        job.Workspace
	root                             bool
}

// A entry is one session.
type entry struct {
	key
	opened chan struct{} // closed when id or err is there
	again  bool          // it goes on with a layer that was put aside

	// Not written any more when opened is closed.
	id  string
	err error

	// Guarded by the mu of the Manager.
	users   int
	turn    uint64 // of the last use
	idle    func() bool
	anew    bool
	lost    bool // the supervisor does not know it
	ended   bool // it is not in the table
	closing bool // somebody closes it
}

// New returns a Manager without sessions. It starts nothing.
func New(o Options) *Manager {
	o.PerPrincipal, o.InAll = cmp.Or(o.PerPrincipal, DefaultPerPrincipal), cmp.Or(o.InAll, DefaultInAll)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.After == nil {
		o.After = func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
	}
	k := &Manager{o: o, all: map[key]*entry{}, former: map[key]string{}}
	k.ctx, k.stop = context.WithCancel(context.Background())
	return k
}

// Acquire implements job.SessionProvider.
func (k *Manager) Acquire(ctx context.Context, r *job.Request, spec job.Spec) (job.Lease, error) {
	if err := ctx.Err(); err != nil {
		return job.Lease{}, err
	}
	s, err := k.enter(key{
		principal: r.Principal, client: r.Session, repo: spec.Repo, profile: spec.Profile, workspace: spec.Workspace, root: r.Root,
	})
	if err != nil {
		return job.Lease{}, err
	}
	select {
	case <-s.opened:
	case <-ctx.Done():
		k.leave(s, false)
		return job.Lease{}, ctx.Err()
	}
	if s.err != nil {
		k.leave(s, false)
		return job.Lease{}, s.err
	}
	var once sync.Once
	return job.Lease{ID: s.id, Anew: k.isAnew(s), Return: func(gone bool) {
		once.Do(func() { k.leave(s, gone) })
	}}, nil
}

func (k *Manager) isAnew(s *entry) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return s.anew
}

// enter returns the session of that key with one more user. One that is not there is being opened then.
func (k *Manager) enter(id key) (*entry, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, fmt.Errorf("%w: the server ends", job.ErrUnavailable)
	}
	s := k.all[id]
	if s == nil {
		var err error
		if s, err = k.add(id); err != nil {
			return nil, err
		}
	}
	k.turn++
	s.users++
	s.turn = k.turn
	if s.idle != nil {
		s.idle()
		s.idle = nil
	}
	return s, nil
}

// add makes room for a session and has it opened. It is called with mu held.
func (k *Manager) add(id key) (*entry, error) {
	var oldest *entry
	mine := 0
	for _, s := range k.all {
		if s.principal != id.principal {
			continue
		}
		mine++
		if s.users == 0 && isClosed(s.opened) && (oldest == nil || s.turn < oldest.turn) {
			oldest = s
		}
	}
	full := mine >= k.o.PerPrincipal
	switch {
	case full && oldest == nil:
		return nil, noRoom("%d sessions of this client are open and busy", mine)
	case !full && k.count >= k.o.InAll:
		return nil, noRoom("%d sessions are open", k.count)
	case !full:
		oldest = nil
	}
	if oldest != nil {
		k.forget(oldest)
		k.remember(oldest.key)
		oldest.closing = true
	}
	layer, had := k.former[id]
	delete(k.former, id)
	s := &entry{key: id, opened: make(chan struct{}), id: layer, again: layer != "", anew: had && layer == ""}
	k.all[id] = s
	k.count++
	k.work.Go(func() {
		if oldest != nil {
			k.end(oldest)
		}
		k.open(s)
	})
	return s, nil
}

func noRoom(format string, n int) error {
	return &job.Refusal{
		Step: "session", Message: fmt.Sprintf(format, n), Hint: "wait for one to end",
	}
}

// open opens s, unless it is a layer that was put aside: the supervisor opens that again when a job names it.
func (k *Manager) open(s *entry) {
	if s.id == "" {
		ctx, cancel := context.WithTimeout(k.ctx, openTime)
		defer cancel()
		var opened job.Session
		opened, s.err = k.o.Sessions.OpenSession(ctx, k.spec(s.key))
		s.id = opened.ID
	}
	k.mu.Lock()
	close(s.opened)
	if s.err != nil {
		k.count--
		k.forget(s)
		if s.anew {
			k.remember(s.key)
		}
		k.mu.Unlock()
		return
	}
	k.armIdleTimer(s)
	mine := k.claim(s)
	k.mu.Unlock()
	if mine {
		k.end(s)
	}
}

// spec is what a session of that key is opened with.
func (k *Manager) spec(id key) job.SessionSpec {
	spec := job.SessionSpec{}
	if id.root {
		spec = k.o.Root
	}
	spec.Repo, spec.Profile, spec.Workspace, spec.Root = id.repo, id.profile, id.workspace, id.root
	spec.Idle = Forever
	if idle := k.idle(id); idle > 0 {
		spec.Idle = min(idle+backstop, Forever)
	}
	return spec
}

func (k *Manager) idle(id key) time.Duration {
	if id.root {
		return k.o.RootIdle
	}
	return k.o.OverlayIdle
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
