package cell

import (
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"github.com/opencontainers/runc/libcontainer"

	"corral/cgroup"
	"corral/internal/fault"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/trust"
	"corral/job"
)

// JailInit is libcontainer's part of building a jail, which runs in a process of its own: this program with the
// argument "init". Call it first in main if os.Args[1] is "init". It returns only if libcontainer did not start the
// process.
func JailInit() { libcontainer.Init() }

// A Jail is the prepared environment of one repository and profile for the jobs of one user.
type Jail struct {
	reporter
	occupancy
	s       *Jails
	key     jailKey
	name    string
	repo    *admit.Repo
	built   chan struct{} // closed when the jail is built or its build has failed
	failure error         // why the build failed; read after built
	gone    chan struct{} // closed when everything of it has been removed

	base      uint32 // first host user id
	container *libcontainer.Container
	init      *initProcess // nil until it was started
	groups    *cgroup.Jail
	root      *jailRoot
	users     *jobUsers
	scanner   *scanner
	scannerMu sync.Mutex    // guards scanner once the jail is built: a session can get another scanner
	late      []inside.Bind // toolchains that every job mounts for itself

	session *Session // the session that owns the jail, or nil
	view    view
	door    atomic.Pointer[sharedDoor] // of the session's network namespace, or nil
	doors   lateDoors

	authority []byte       // certificate that jobs with a door trust, in PEM; empty: none
	trusted   *trust.Files // for it; nil: none

	pool       *pool
	toldMounts atomic.Value // the mounts below the repository that a result had last, a string
}

// Repo returns the repository of the jail, which belongs to it.
func (j *Jail) Repo() *admit.Repo { return j.repo }

// Connects reports whether the jail's jobs may reach hosts: their slots have doors.
func (j *Jail) Connects() bool { return j.key.door || j.doors.open.Load() }

// Authority returns the certificate, in PEM, of the authority that the jail's jobs trust until its end; empty: none. A door of the
// jail is to be opened with that authority.
func (j *Jail) Authority() []byte { return j.authority }

// IsBuilt reports whether the jail is built.
func (j *Jail) IsBuilt() bool { return isClosed(j.built) && j.failure == nil }

// IsGone reports whether everything of the jail has been removed.
func (j *Jail) IsGone() bool { return isClosed(j.gone) }

// AwaitGone waits until everything of the jail has been removed.
func (j *Jail) AwaitGone() { <-j.gone }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// AwaitBuilt waits until the jail is built, or its build has failed and nothing of it is left.
func (j *Jail) AwaitBuilt() error {
	<-j.built
	if j.failure != nil {
		<-j.gone
		return j.failure
	}
	return nil
}

// newJail returns a jail that is not built. The caller holds s.mu.
func (s *Jails) newJail(key jailKey, r *admit.Repo, session *Session, authority []byte) *Jail {
	j := &Jail{
		s: s, key: key, name: s.Instance.Unique("jail-"), repo: r, session: session, authority: authority,
		built: make(chan struct{}), gone: make(chan struct{}),
	}
	j.reporter = reporter{s.Log, j.name}
	j.occupancy = occupancy{log: s.Log, idle: s.Idle, end: j.endInit, jobs: 1}
	j.users = newJobUsers(session != nil, func(n uint32) (*os.File, error) { return s.Userns.RepoMap(r.Owner, j.base+1+n, j.base) })
	j.pool = newPool(j)
	return j
}

// endInit ends process 1, if it was started, and with it every process of the jail.
func (j *Jail) endInit() {
	if j.init != nil {
		j.init.end()
	}
}

// awaitInit waits for the exit of process 1. One that does not exit in time is left behind.
func (j *Jail) awaitInit() { j.report("process 1: a process of the jail did not exit", j.init.await()) }

// Drop ends the jail and every process in it, by closing the socket of its process 1.
func (j *Jail) Drop() {
	<-j.built
	j.markDropped(false)
	j.endInit()
}

// lifecycle builds the jail, waits for its end and removes everything it had on the host.
func (j *Jail) lifecycle() {
	defer j.s.work.Done()
	defer close(j.gone)
	var u host.Cleanup
	j.failure = fault.Contain(j.s.Log, "building a jail", func() error { return j.build(&u) }, "jail", j.name)
	if j.failure != nil {
		j.markDropped(false)
		level := slog.LevelError
		if errors.As(j.failure, new(*job.Refusal)) {
			level = slog.LevelInfo // the client receives the reason
		}
		j.s.Log.Log(j.s.Context, level, "jail not built", "jail", j.name, "repo", j.repo.Path, "error", j.failure)
	}
	close(j.built)
	if j.failure == nil {
		j.s.Log.Info("jail built", "jail", j.name, "repo", j.repo.Path)
		j.s.RootAhead()
		j.awaitInit()
		j.markDropped(false)
	}
	fault.Do(j.s.Log, "ending a jail", func() { j.end(&u) }, "jail", j.name) // what is left then, and its user ids, are not used again
	if j.session != nil {
		j.session.Forget()
	}
	j.s.Log.Info("jail ended", "jail", j.name)
}

// end removes what the jail had on the host, when no job is in it any more.
func (j *Jail) end(u *host.Cleanup) {
	defer j.s.forget(j)
	j.pool.close()
	fault.With(&j.scannerMu, j.scanner.close)
	j.work.Wait()
	j.s.forget(j)
	u.Run()
}

// forget removes a jail from those that jobs can enter.
func (s *Jails) forget(j *Jail) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[j.key] == j {
		delete(s.all, j.key)
	}
}

var errJailEnded = errors.New("the jail ended")

// discard closes the sockets of a door soon. corral-egress had them, too: one that was taken over can have the last close wait for the
// other end of a connection (SO_LINGER).
func (j *Jail) discard(sockets []*os.File) { j.s.Probes.Discard(j.key.payer, sockets...) }
