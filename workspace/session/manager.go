// Package session manages the sessions that a front-end's clients have with the supervisor.
//
// A Manager provides sessions to the jobs of package job's Engine. A client has one session for each repository and
// kind: with a root file system of its own, or with an overlay over the repository alone. A session is opened when
// the first job needs it; jobs that ask for it meanwhile wait for the same one. Any number of jobs use it at once.
//
// A session ends when its client's does (End), when no job has used it for its idle timeout, when its principal opens
// too many others, when the disk has no room for another one's layer, and with the Manager. Its end is orderly then: jobs'
// changes to a repository behind an overlay are kept for review, and the diagnostic log has their id. The rest of a layer is
// deleted with its session. A client that returns after its overlay expired for being idle gets the same overlay again. When
// the front-end or its connection dies, the supervisor ends its sessions and keeps the changes behind an overlay, too; no
// client gets that overlay again, but it can be reviewed.
//
// A session that the supervisor no longer has is forgotten when it is returned; the next job gets a new one, whose
// Lease reports Replaced.
//
// The number of sessions is bounded for each principal and in total, and so is the number of kept layers of each
// principal. The package starts no job and reads no file.
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

// Defaults of Options.
const (
	DefaultPerPrincipal = DefaultInAll
	DefaultInAll        = 128
	// Forever is the supervisor's idle timeout for a session that has none.
	Forever = 24 * time.Hour
)

const (
	// openTime is the timeout of opening a session.
	openTime = time.Minute
	// backstop is how much longer than the Manager's the supervisor's idle timeout is.
	backstop = time.Minute
	// maxFormer is the maximum number of ended sessions that are remembered.
	maxFormer = 1024
)

// Options configure a Manager.
type Options struct {
	Sessions job.Sessions
	// Root has the Image, Disk and Inodes for sessions with a root file system.
	Root job.SessionSpec
	// RootIdle and OverlayIdle are the idle timeouts of the two kinds of session; 0 means never.
	RootIdle, OverlayIdle time.Duration
	PerPrincipal          int          // maximum of sessions per principal; 0 is DefaultPerPrincipal
	InAll                 int          // maximum of sessions in total; 0 is DefaultInAll
	Log                   *slog.Logger // nil discards log lines
}

// A Manager manages the sessions of a front-end's clients. Its methods may be called by several goroutines at once.
type Manager struct {
	o    Options
	ctx  context.Context // cancelled by Close
	stop context.CancelFunc
	work sync.WaitGroup // goroutines that open or close

	mu     sync.Mutex
	all    map[key]*entry             // guarded by mu
	count  int                        // guarded by mu: sessions in all, and those being closed
	turn   uint64                     // guarded by mu: incremented with each use
	former map[key]former             // guarded by mu: ended sessions
	kept   map[string]map[string]bool // guarded by mu: ids of kept layers, by principal
	closed bool                       // guarded by mu
}

// A key identifies a session by its client and kind.
type key struct {
	principal, client, repo, profile string
	network                          string // what its jobs may reach
	workspace                        job.Workspace
	root                             bool
}

// former is an ended session.
type former struct {
	layer string         // that can be used again; "" if there is none
	why   job.SessionEnd // it has ended
}

// An entry is one session.
type entry struct {
	key
	opened chan struct{} // closed when id or err is set
	again  bool          // it reuses a kept layer
	share  bool          // its jobs share the home directory and /tmp, because the request that opened it asked for that

	// Immutable once opened is closed.
	id  string
	err error

	// Guarded by the Manager's mu.
	users    int
	turn     uint64 // of the last use
	idle     *time.Timer
	replaced job.SessionEnd // why an earlier one has ended
	lost     bool           // the supervisor no longer has it
	ended    bool           // it is not in the table any more
	closing  bool           // a goroutine is closing it
}

// New returns a Manager without sessions. It starts no goroutine.
func New(o Options) *Manager {
	o.PerPrincipal, o.InAll = cmp.Or(o.PerPrincipal, DefaultPerPrincipal), cmp.Or(o.InAll, DefaultInAll)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	k := &Manager{o: o, all: map[key]*entry{}, former: map[key]former{}, kept: map[string]map[string]bool{}}
	k.ctx, k.stop = context.WithCancel(context.Background())
	return k
}

// Acquire implements job.SessionProvider.
func (k *Manager) Acquire(ctx context.Context, r *job.Request, spec job.Spec) (job.Lease, error) {
	if err := ctx.Err(); err != nil {
		return job.Lease{}, err
	}
	s, err := k.enter(key{
		principal: r.Principal, client: r.Session, repo: spec.Repo, profile: spec.Profile, network: spec.SessionNetwork,
		workspace: spec.Workspace, root: r.Root,
	}, r.Share)
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
	return job.Lease{
		ID: s.id, Replaced: k.isReplaced(s), MakeRoom: func() bool { return k.endForRoom(s) },
		Return: func(gone bool) { once.Do(func() { k.leave(s, gone) }) },
	}, nil
}

// An Open is an open session of a principal, for one of its clients and in a repository given by its path.
type Open struct{ ID, Repo, Client string }

// OpenOf returns the open sessions of a principal, in any order.
func (k *Manager) OpenOf(principal string) []Open {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []Open
	for _, s := range k.all {
		if s.principal == principal && isClosed(s.opened) && s.err == nil && !s.lost && !s.ended {
			list = append(list, Open{s.id, s.repo, s.client})
		}
	}
	return list
}

func (k *Manager) isReplaced(s *entry) job.SessionEnd {
	k.mu.Lock()
	defer k.mu.Unlock()
	return s.replaced
}

// enter returns the session of that key with one more user. If there is none, it starts opening one.
func (k *Manager) enter(id key, share bool) (*entry, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, fmt.Errorf("%w: the server is shutting down", job.ErrUnavailable)
	}
	s := k.all[id]
	if s == nil {
		var err error
		if s, err = k.add(id, share); err != nil {
			return nil, err
		}
	}
	k.turn++
	s.users++
	s.turn = k.turn
	if s.idle != nil {
		s.idle.Stop()
		s.idle = nil
	}
	return s, nil
}

// add starts opening a session. If there are as many as there may be, of its principal or in all, it ends an idle one, see spare. mu
// must be held.
func (k *Manager) add(id key, share bool) (*entry, error) {
	mine := 0
	for _, s := range k.all {
		if s.principal == id.principal {
			mine++
		}
	}
	var oldest *entry
	full := mine >= k.o.PerPrincipal
	if full || k.count >= k.o.InAll {
		oldest = k.spare(nil, id.principal, full)
	}
	switch {
	case oldest != nil:
		k.giveUp(oldest, job.SessionForMore)
	case full:
		return nil, noRoom("%d sessions of this client are open and busy", mine)
	case k.count >= k.o.InAll:
		return nil, noRoom("%d sessions are open", k.count)
	}
	before := k.former[id]
	delete(k.former, id)
	if before.layer != "" { // its files are still there
		before.why = ""
	}
	s := &entry{
		key: id, share: share && !id.root, opened: make(chan struct{}), id: before.layer,
		again: before.layer != "", replaced: before.why,
	}
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

// open opens s, unless it reuses a kept layer: the supervisor opens that one when a job names it.
func (k *Manager) open(s *entry) {
	if s.id == "" {
		ctx, cancel := context.WithTimeout(k.ctx, openTime)
		defer cancel()
		if s.err = k.shareToKeep(ctx, s); s.err == nil {
			var opened job.Session
			opened, s.err = k.openInRoom(ctx, s)
			s.id = opened.ID
		}
	}
	k.mu.Lock()
	close(s.opened)
	if s.err != nil {
		k.count--
		k.forget(s)
		if s.replaced != "" {
			k.former[s.key] = former{why: s.replaced}
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

// spec returns the spec to open s with.
func (k *Manager) spec(s *entry) job.SessionSpec {
	id, spec := s.key, job.SessionSpec{}
	if id.root {
		spec = k.o.Root
	}
	spec.Repo, spec.Profile, spec.Workspace, spec.Root = id.repo, id.profile, id.workspace, id.root
	spec.Share, spec.Network = s.share, id.network
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
