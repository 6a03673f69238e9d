package isolate

import (
	"sort"
	"sync"
	"time"

	"corral/isolate/admit"
	"corral/isolate/cell"
	"corral/isolate/host"
	"corral/isolate/wire"
)

// A jobTable has the live jobs of a supervisor.
type jobTable struct {
	jails *cell.Jails

	mu                 sync.Mutex
	maxAll, maxPerUser int             // guarded by mu: maximum of jobs, in all and per user other than root
	live               map[string]*run // guarded by mu: by id
	perUser            map[uint32]int  // guarded by mu
}

func newJobTable(maxAll, maxPerUser int, jails *cell.Jails) *jobTable {
	return &jobTable{maxAll: maxAll, maxPerUser: maxPerUser, jails: jails, live: map[string]*run{}, perUser: map[uint32]int{}}
}

// adjust changes how many jobs there may be. Jobs that run are not ended.
func (t *jobTable) adjust(maxAll, maxPerUser int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.maxAll, t.maxPerUser = maxAll, maxPerUser
}

// register counts a run, or refuses it if there are too many. It precedes any access to what the client named or
// passed, and so bounds what the client's own file system can block.
func (t *jobTable) register(r *run) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.live) >= t.maxAll {
		return admit.TooMany(len(t.live), "of this supervisor")
	}
	if n := t.perUser[r.peer.Payer()]; r.peer.UID != 0 && n >= t.maxPerUser {
		return admit.TooMany(n, "per user")
	}
	r.started = time.Now()
	t.live[r.id] = r
	t.jails.JobBegins()
	t.perUser[r.peer.Payer()]++
	return nil
}

func (t *jobTable) unregister(r *run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, r.id)
	t.jails.JobEnds()
	if t.perUser[r.peer.Payer()]--; t.perUser[r.peer.Payer()] == 0 {
		delete(t.perUser, r.peer.Payer())
	}
}

// setRepo records the repository of a registered run.
func (t *jobTable) setRepo(r *run, path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.repo = path
}

// entries lists the running jobs that peer may see: its own, or all if it is root.
func (t *jobTable) entries(peer host.Peer) []wire.Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []wire.Entry
	for _, r := range t.live {
		if peer.UID == r.peer.UID || peer.UID == 0 {
			list = append(list, wire.Entry{Job: r.id, UID: r.peer.UID, Started: r.started.UnixNano(), Repo: r.repo})
		}
	}
	sort.Slice(list, func(i, k int) bool { return list[i].Started < list[k].Started })
	return list
}
