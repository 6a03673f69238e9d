package cell

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/opencontainers/runc/libcontainer"

	"corral/cgroup"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/layer"
	"corral/isolate/wire"
	"corral/job"
	"corral/seccomp"
)

// JailInit is libcontainer's part of building a jail, which runs in a process of its own: this program with the
// argument "init". Call it first in main if os.Args[1] is "init". It returns only if libcontainer did not start the
// process.
func JailInit() { libcontainer.Init() }

// A jailKey identifies a jail: jobs with equal keys share one.
type jailKey struct {
	admit.Identity
	common  admit.Identity // zero: the repository is not a worktree
	profile string
	session string // "": the jail is shared by jobs without a session
}

// A Jail is the prepared environment of one repository and profile.
type Jail struct {
	s        *Jails
	key      jailKey
	builtFor uint32 // the user for whose job it was built
	name     string
	repo     *admit.Repo
	built    chan struct{} // closed when the jail is built or its build has failed
	failure  error         // why the build failed; read after built
	ended    chan struct{} // closed when its process 1 has exited
	gone     chan struct{} // closed when everything of it has been removed
	overdue  chan struct{} // closed when its process 1 did not exit in time
	endOnce  sync.Once     // starts the timeout for the exit of process 1

	base      uint32 // first host user id
	container *libcontainer.Container
	init      *wire.Conn
	groups    *cgroup.Jail
	scanner   *scanner
	scannerMu sync.Mutex    // guards scanner once the jail is built: a session can get another scanner
	late      []inside.Bind // toolchains that every job mounts for itself

	session  *Session // the session that owns the jail, or nil; the following fields are for a session
	layer    *layer.Layer
	layerMap *os.File    // user namespace that maps the owners on a layer to the jail's root and its first user
	merged   string      // mount point of the overlay over the repository, or ""
	roots    []bindMount // the mounts that make up a session's own root
	shares   []bindMount // directories of the layer shared by the session's jobs

	initMu   sync.Mutex     // one request to the init at a time
	requests uint32         // guarded by initMu
	work     sync.WaitGroup // slots that exist; incremented under mu

	mu           sync.Mutex
	users        int                 // guarded by mu: jobs that run in the jail or are about to
	idleTimer    *time.Timer         // guarded by mu: drops the jail when it fires
	reclaimTimer *time.Timer         // guarded by mu: calls reclaim
	dyingGroups  int                 // guarded by mu: memory cgroups removed since the last reclaim
	dropped      bool                // guarded by mu
	freeUsers    []uint32            // guarded by mu: numbers of users that no slot has
	idmaps       map[uint32]*os.File // guarded by mu: by user number

	pool *pool
}

// Enter returns the jail for r and profile, building it if necessary. It takes over r. The caller must call leave.
func (s *Jails) Enter(peer host.Peer, r *admit.Repo, profile string) (*Jail, error) {
	key := keyOf(r, profile, "")
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		r.Close()
		return nil, host.ErrEnding
	}
	j, ok := s.all[key]
	if ok && j.use() {
		s.mu.Unlock()
		r.Close()
	} else {
		if err := s.roomForJail(peer); err != nil {
			s.mu.Unlock()
			r.Close()
			return nil, err
		}
		j = s.newJail(key, r)
		j.builtFor = peer.Payer()
		s.all[key] = j
		s.work.Add(1)
		s.mu.Unlock()
		go j.lifecycle()
	}
	<-j.built
	if j.failure != nil {
		j.Leave()
		return nil, j.failure
	}
	return j, nil
}

// roomForJail refuses another jail if there are too many, in all or of this user, and no unused one can be evicted.
// The caller holds s.mu.
func (s *Jails) roomForJail(peer host.Peer) error {
	mine := 0
	for _, j := range s.all {
		if j.builtFor == peer.Payer() {
			mine++
		}
	}
	tooMany := len(s.all) >= s.MaxJails
	tooManyMine := peer.UID != 0 && mine >= max(s.MaxJails/4, 1)
	if !tooMany && !tooManyMine {
		return nil
	}
	for _, j := range s.all {
		if (j.builtFor == peer.Payer() || !tooManyMine) && j.dropUnused() {
			return nil
		}
	}
	return &job.Refusal{
		Step: "jail", Message: fmt.Sprintf("too many jails are in use: %d in all, %d of them yours", len(s.all), mine),
		Hint: "try again when a job has ended",
	}
}

// StartFor starts to build a jail for a session, and takes over r unless it returns an error. It calls admit when there
// is room for the jail, with the jails locked: if that returns an error, no jail is built.
func (s *Jails) StartFor(t *Session, peer host.Peer, r *admit.Repo, profile string, admit func(*Jail) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return host.ErrEnding
	}
	if err := s.roomForJail(peer); err != nil {
		return err
	}
	j := s.newJail(keyOf(r, profile, t.ID), r)
	j.builtFor, j.session = peer.Payer(), t
	if err := admit(j); err != nil {
		return err
	}
	s.all[j.key] = j
	s.work.Add(1)
	go j.lifecycle()
	return nil
}

// Repo returns the repository of the jail, which belongs to it.
func (j *Jail) Repo() *admit.Repo { return j.repo }

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

func (s *Jails) newJail(key jailKey, r *admit.Repo) *Jail {
	j := &Jail{
		s: s, key: key, name: s.Instance.Unique("jail-"), repo: r, users: 1,
		built: make(chan struct{}), ended: make(chan struct{}), gone: make(chan struct{}), overdue: make(chan struct{}), idmaps: map[uint32]*os.File{},
	}
	j.pool = newPool(j)
	for n := uint32(host.JobUIDs); n > 0; n-- {
		j.freeUsers = append(j.freeUsers, n-1)
	}
	if key.session != "" {
		j.freeUsers = j.freeUsers[:host.JobUIDs-1] // the first is reserved for the session
	}
	return j
}

// use counts one more user of the jail. It returns false if the jail is being dropped.
func (j *Jail) use() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.dropped {
		return false
	}
	j.users++
	if j.idleTimer != nil {
		j.idleTimer.Stop()
		j.idleTimer = nil
	}
	if j.reclaimTimer != nil {
		j.reclaimTimer.Stop()
		j.reclaimTimer = nil
	}
	return true
}

// Leave ends a use. The last one starts the idle timer, or ends the jail if it was retired.
func (j *Jail) Leave() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.users--
	switch {
	case j.users > 0:
	case !j.dropped:
		j.idleTimer = time.AfterFunc(j.s.Idle, func() { j.dropUnused() })
		if j.dyingGroups >= j.s.Dying {
			j.reclaimTimer = time.AfterFunc(j.s.Reclaim, j.reclaim)
		}
	case j.init != nil:
		j.endInit()
	}
}

// maxDying is the number of memory cgroups of ended jobs, roughly 100 KiB of kernel memory each, above which their
// cached files are reclaimed. That happens only after the jail has been unused for reclaimRest, because the next job
// has to read its files from disk again.
const (
	maxDying    = 256
	reclaimRest = 10 * time.Second
)

// removedGroup counts a removed memory cgroup.
func (j *Jail) removedGroup() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.dyingGroups++
}

// reclaim drops cached files so that the kernel frees removed cgroups, unless a job has come.
func (j *Jail) reclaim() {
	j.mu.Lock()
	idle := j.users == 0 && !j.dropped
	if idle {
		j.dyingGroups = 0
		j.work.Add(1)
	}
	j.mu.Unlock()
	if idle {
		defer j.work.Done()
		j.report("cached files", j.groups.Reclaim())
	}
}

// endInit closes the socket of process 1, which then exits, and with it every process of the jail.
func (j *Jail) endInit() {
	j.init.Close()
	j.endOnce.Do(func() {
		late := time.AfterFunc(host.SlotPatience, func() { close(j.overdue) })
		go func() {
			select {
			case <-j.ended:
				late.Stop()
			case <-j.overdue:
			}
		}()
	})
}

// awaitInit waits for the exit of process 1. The kernel completes that only when the jail's last process has exited,
// and a process that waits for a file system may never exit: after host.SlotPatience it is left behind.
func (j *Jail) awaitInit() {
	select {
	case <-j.ended:
	case <-j.overdue:
		j.report("process 1: a process of the jail did not exit", errLeft)
	}
}

var errLeft = fmt.Errorf("not ended after %v", host.SlotPatience)

// retire keeps further jobs from entering the jail. It ends when the jobs in it have ended.
func (j *Jail) retire() { j.markDropped(false) }

// addSlot counts one more slot, which lifecycle waits for. It returns false if the jail is being dropped. The slot's
// end calls work.Done.
func (j *Jail) addSlot() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.dropped {
		return false
	}
	j.work.Add(1)
	return true
}

// dropUnused drops the jail if no job is in it or about to be.
func (j *Jail) dropUnused() bool {
	if !j.markDropped(true) {
		return false
	}
	j.endInit()
	return true
}

// Drop ends the jail and every process in it, by closing the socket of its process 1.
func (j *Jail) Drop() {
	<-j.built
	j.markDropped(false)
	if j.init != nil {
		j.endInit()
	}
}

// markDropped keeps further jobs from entering. It returns false if the jail was marked already, or if onlyUnused is
// set and the jail is in use.
func (j *Jail) markDropped(onlyUnused bool) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.dropped || onlyUnused && j.users > 0 {
		return false
	}
	j.dropped = true
	return true
}

// lifecycle builds the jail, waits for its end and removes everything it had on the host.
func (j *Jail) lifecycle() {
	defer j.s.work.Done()
	defer close(j.gone)
	var u host.Cleanup
	j.failure = j.build(&u)
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
	j.pool.close()
	j.scannerMu.Lock()
	j.scanner.close()
	j.scannerMu.Unlock()
	j.work.Wait()
	j.s.mu.Lock()
	if j.s.all[j.key] == j {
		delete(j.s.all, j.key)
	}
	j.s.mu.Unlock()
	u.Run()
	if j.session != nil {
		j.session.Forget()
	}
	j.s.Log.Info("jail ended", "jail", j.name)
}

// takeUser returns the number of a user that no other slot has. All jobs of a session have the same user.
func (j *Jail) takeUser(profile string) (uint32, error) {
	if j.session != nil && profile != seccomp.Scanner {
		return 0, nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.freeUsers) == 0 {
		return 0, fmt.Errorf("all %d job users of this jail are in use", host.JobUIDs)
	}
	n := j.freeUsers[len(j.freeUsers)-1]
	j.freeUsers = j.freeUsers[:len(j.freeUsers)-1]
	return n, nil
}

func (j *Jail) returnUser(n uint32) {
	if j.session != nil && n == 0 {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.freeUsers = append(j.freeUsers, n)
	if m := j.idmaps[n]; m != nil && len(j.idmaps) > maxIDMaps {
		m.Close()
		delete(j.idmaps, n)
	}
}

// maxIDMaps is the number of id maps above which a jail closes the map of a returned user. Users are reused last in,
// first out.
const maxIDMaps = 16

// idmap returns the id map from the repository's owner to the user with number n. It is valid until n is returned;
// the jail caches it while it has few.
func (j *Jail) idmap(n uint32) (*os.File, error) {
	j.mu.Lock()
	m := j.idmaps[n]
	j.mu.Unlock()
	if m != nil {
		return m, nil
	}
	m, err := j.s.Userns.RepoMap(j.repo.Owner, j.base+1+n, j.base)
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.idmaps[n] = m // a number has one slot at a time, so no other goroutine has made it in the meantime
	return m, nil
}

func (j *Jail) closeIDMaps() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, m := range j.idmaps {
		m.Close()
	}
	j.idmaps = nil
}

var errJailEnded = errors.New("the jail ended")

// keyOf returns the key of the jail for jobs in r. session is "" for jobs without a session.
func keyOf(r *admit.Repo, profile, session string) jailKey {
	key := jailKey{Identity: r.Identity(), profile: profile, session: session}
	if r.Common != nil {
		key.common = r.Common.Identity()
	}
	return key
}
