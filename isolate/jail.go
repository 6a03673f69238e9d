package isolate

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/opencontainers/runc/libcontainer"

	"corral/cgroup"
	"corral/isolate/inside"
	"corral/isolate/wire"
	"corral/job"
	"corral/seccomp"
)

// JailInit is libcontainer's side of building a jail, which runs in a process of its own: this program with the
// argument "init". Call it first in main when os.Args[1] is that; it returns only if it was not libcontainer who asked.
func JailInit() { libcontainer.Init() }

// A jailKey names a jail: jobs of one key share one.
type jailKey struct {
	repoIdentity
	common  repoIdentity // zero: the repository is no worktree
	profile string
	session string // "" is the jail that jobs without a session share
}

// A repoIdentity tells a repository from another that was at the same place.
type repoIdentity struct {
	dev, ino uint64
	uid, gid uint32 // of its owner, and of its jobs' group: the map is made for them
	group    uint32 // its own group
	readOnly bool   // for these clients
	path     string
}

// A jail is the prepared environment of one repository and profile.
type jail struct {
	s       *Supervisor
	key     jailKey
	by      uint32 // the user whose job it was built for
	name    string
	repo    *repo
	built   chan struct{} // closed when the jail stands or failed
	failure error         // why it failed; read after built
	ended   chan struct{} // closed when its process 1 is gone
	gone    chan struct{} // closed when nothing of it is left
	overdue chan struct{} // closed when its process 1 was told to end and has not in time
	telling sync.Once     // of process 1

	base      uint32 // first host user id
	container *libcontainer.Container
	init      *wire.Conn
	groups    *cgroup.Jail
	scanner   *scanner
	scannerMu sync.Mutex    // a session gets another scanner; guards scanner from then on
	late      []inside.Bind // toolchains that each job binds for itself

	session  *session // whose jail it is, or nil; the following are those of a session
	layerMap *os.File // user namespace that maps the owners on a layer to the jail's root and its first user
	merged   string   // where the overlay over the repository is mounted, or ""
	roots    []place  // what a root of the session's own consists of
	shares   []place  // directories of the layer that all jobs of the session share, and where jobs see them

	initMu   sync.Mutex     // one slot request at a time
	requests uint32         // guarded by initMu
	work     sync.WaitGroup // slots that live; counted up under mu

	mu      sync.Mutex
	users   int                 // guarded by mu: jobs that run in it or are about to
	idle    *time.Timer         // guarded by mu: runs drop
	rest    *time.Timer         // guarded by mu: runs reclaim
	dying   int                 // guarded by mu: memory cgroups that were removed since the last reclaim
	dropped bool                // guarded by mu
	free    []uint32            // guarded by mu: numbers of users that no slot has
	idmaps  map[uint32]*os.File // guarded by mu: by number of the user

	pool *pool
}

// enter returns the jail for r and profile, which is built if it does not stand. The caller must leave it.
func (s *Supervisor) enter(peer Peer, r *repo, profile string) (*jail, error) {
	key := r.key(profile, "")
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		r.close()
		return nil, errEnding
	}
	j, ok := s.jails[key]
	if ok && j.use() {
		s.mu.Unlock()
		r.close()
	} else {
		if err := s.roomForJail(peer); err != nil {
			s.mu.Unlock()
			r.close()
			return nil, err
		}
		j = s.newJail(key, r)
		j.by = peer.payer()
		s.jails[key] = j
		s.work.Add(1)
		s.mu.Unlock()
		go j.live()
	}
	<-j.built
	if j.failure != nil {
		j.leave()
		return nil, j.failure
	}
	return j, nil
}

// roomForJail refuses one more jail when there are too many, in all or of this user, and no unused one to make room.
// The caller holds s.mu.
func (s *Supervisor) roomForJail(peer Peer) error {
	mine := 0
	for _, j := range s.jails {
		if j.by == peer.payer() {
			mine++
		}
	}
	tooMany := len(s.jails) >= s.config.MaxJails
	tooManyMine := peer.UID != 0 && mine >= max(s.config.MaxJails/4, 1)
	if !tooMany && !tooManyMine {
		return nil
	}
	for _, j := range s.jails {
		if (j.by == peer.payer() || !tooManyMine) && j.dropUnused() {
			return nil
		}
	}
	return &job.Refusal{
		Step: "jail", Message: fmt.Sprintf("jobs run in %d repositories, %d of them yours: no more at once", len(s.jails), mine),
		Hint: "try again when one has ended",
	}
}

func (s *Supervisor) newJail(key jailKey, r *repo) *jail {
	j := &jail{
		s: s, key: key, name: s.name("jail-"), repo: r, users: 1,
		built: make(chan struct{}), ended: make(chan struct{}), gone: make(chan struct{}), overdue: make(chan struct{}), idmaps: map[uint32]*os.File{},
	}
	j.pool = newPool(j)
	for n := uint32(jobUIDs); n > 0; n-- {
		j.free = append(j.free, n-1)
	}
	if key.session != "" {
		j.free = j.free[:jobUIDs-1] // the first is the session's
	}
	return j
}

// use counts one more user, unless the jail is being dropped.
func (j *jail) use() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.dropped {
		return false
	}
	j.users++
	if j.idle != nil {
		j.idle.Stop()
		j.idle = nil
	}
	if j.rest != nil {
		j.rest.Stop()
		j.rest = nil
	}
	return true
}

// leave ends a use. The last one starts the clock after which the jail is dropped, or ends one that was retired.
func (j *jail) leave() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.users--
	switch {
	case j.users > 0:
	case !j.dropped:
		j.idle = time.AfterFunc(j.s.config.JailIdle, func() { j.dropUnused() })
		if j.dying >= maxDying {
			j.rest = time.AfterFunc(j.s.config.reclaim, j.reclaim)
		}
	case j.init != nil:
		j.endInit()
	}
}

// maxDying is how many memory cgroups of ended jobs the kernel may still have, in the order of some 100 KiB each, before their
// cached files are dropped: once the jail has not been used for reclaimRest, for the next job reads its files anew then.
const (
	maxDying    = 256
	reclaimRest = 10 * time.Second
)

// removedGroup counts one more.
func (j *jail) removedGroup() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.dying++
}

// reclaim has the kernel let go of removed cgroups, unless a job has come.
func (j *jail) reclaim() {
	j.mu.Lock()
	idle := j.users == 0 && !j.dropped
	if idle {
		j.dying = 0
		j.work.Add(1)
	}
	j.mu.Unlock()
	if idle {
		defer j.work.Done()
		j.report("cached files", j.groups.Reclaim())
	}
}

// endInit ends process 1, which sees the socket's end, and with it every process of the jail.
func (j *jail) endInit() {
	j.init.Close()
	j.telling.Do(func() {
		late := time.AfterFunc(slotPatience, func() { close(j.overdue) })
		go func() {
			select {
			case <-j.ended:
				late.Stop()
			case <-j.overdue:
			}
		}()
	})
}

// awaitInit waits for the end of process 1. The kernel ends it when the last process of the jail has ended, and one that waits
// for a file system may never do so: it is left behind.
func (j *jail) awaitInit() {
	select {
	case <-j.ended:
	case <-j.overdue:
		j.report("process 1, of which a process cannot be ended", errLeft)
	}
}

var errLeft = fmt.Errorf("not ended within %v", slotPatience)

// retire lets nobody enter the jail any more; it ends with the jobs in it.
func (j *jail) retire() { j.condemn(false) }

// hold counts one more slot, which live waits for, unless the jail is being dropped. The slot's end is work.Done.
func (j *jail) hold() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.dropped {
		return false
	}
	j.work.Add(1)
	return true
}

// dropUnused drops the jail if no job is in it or about to be.
func (j *jail) dropUnused() bool {
	if !j.condemn(true) {
		return false
	}
	j.endInit()
	return true
}

// drop ends the jail: its process 1 sees the socket's end, and with it every process in it goes.
func (j *jail) drop() {
	<-j.built
	j.condemn(false)
	if j.init != nil {
		j.endInit()
	}
}

// condemn marks the jail as dropped, after which nobody enters it, and says whether that was news.
func (j *jail) condemn(onlyUnused bool) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.dropped || onlyUnused && j.users > 0 {
		return false
	}
	j.dropped = true
	return true
}

// live builds the jail, waits for its end and removes what it had on the host.
func (j *jail) live() {
	defer j.s.work.Done()
	defer close(j.gone)
	var u undo
	j.failure = j.build(&u)
	if j.failure != nil {
		j.condemn(false)
		level := slog.LevelError
		if errors.As(j.failure, new(*job.Refusal)) {
			level = slog.LevelInfo // who asked is told
		}
		j.s.config.Log.Log(j.s.ctx, level, "jail not built", "jail", j.name, "repo", j.repo.path, "error", j.failure)
	}
	close(j.built)
	if j.failure == nil {
		j.s.config.Log.Info("jail built", "jail", j.name, "repo", j.repo.path)
		j.s.rootAhead()
		j.awaitInit()
		j.condemn(false)
	}
	j.pool.close()
	j.scannerMu.Lock()
	j.scanner.close()
	j.scannerMu.Unlock()
	j.work.Wait()
	j.s.mu.Lock()
	if j.s.jails[j.key] == j {
		delete(j.s.jails, j.key)
	}
	j.s.mu.Unlock()
	u.run()
	if j.session != nil {
		j.s.forget(j.session)
	}
	j.s.config.Log.Info("jail ended", "jail", j.name)
}

// takeUser returns the number of a user that no live slot has; the jobs of a session are all of one.
func (j *jail) takeUser(profile string) (uint32, error) {
	if j.session != nil && profile != seccomp.Scanner {
		return 0, nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.free) == 0 {
		return 0, fmt.Errorf("%d jobs run in this repository at once, no user is left", jobUIDs)
	}
	n := j.free[len(j.free)-1]
	j.free = j.free[:len(j.free)-1]
	return n, nil
}

func (j *jail) returnUser(n uint32) {
	if j.session != nil && n == 0 {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.free = append(j.free, n)
	if m := j.idmaps[n]; m != nil && len(j.idmaps) > maxIDMaps {
		m.Close()
		delete(j.idmaps, n)
	}
}

// maxIDMaps is how many maps a jail keeps beyond those in use. The user that was returned last is the next one's.
const maxIDMaps = 16

// idmap returns the map of the repository's owner to the user of number n. It lasts until the number is returned, and is kept
// with the jail if that has few.
func (j *jail) idmap(n uint32) (*os.File, error) {
	j.mu.Lock()
	m := j.idmaps[n]
	j.mu.Unlock()
	if m != nil {
		return m, nil
	}
	m, err := j.s.userns.repoMap(j.repo, j.base+1+n, j.base)
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.idmaps[n] = m // a number has one user at a time, so nobody else has made it meanwhile
	return m, nil
}

func (j *jail) closeIDMaps() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, m := range j.idmaps {
		m.Close()
	}
	j.idmaps = nil
}

var errJailEnded = errors.New("the jail ended")
