package isolate

import (
	"fmt"
	"os"
	"sort"
	"sync/atomic"
	"time"

	"corral/internal/fault"
	"corral/isolate/admit"
	"corral/isolate/cell"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// A jobTable has the live jobs of a supervisor.
type jobTable struct {
	jails *cell.Jails
	drain atomic.Bool // no new jobs and sessions are admitted

	mu                 fault.Mutex
	maxAll, maxPerUser int             // guarded by mu: maximum of jobs, in all and per user other than root
	live               map[string]*run // guarded by mu: by id
	perUser            map[uint32]int  // guarded by mu: live jobs
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

// kill ends the job called id, if peer may: the user whose job it is, or root at a daemon's socket.
func (t *jobTable) kill(peer host.Peer, id string) error {
	r := fault.Get(&t.mu, func() *run { return t.live[id] })
	if r == nil || !peer.MayOperate() && (peer.UID != r.peer.UID || peer.Embedded != r.peer.Embedded) {
		return &job.Refusal{Step: "request", Message: fmt.Sprintf("no job %q", id), Hint: "it has ended, or it is not yours: corral ps"}
	}
	r.ask(wire.Stopped)
	return nil
}

// errDraining refuses new work while the supervisor is drained.
var errDraining = &job.Refusal{
	Step: "request", Message: "the supervisor is being drained: it takes no new jobs or sessions",
	Hint: "try again when it was restarted; root ends the drain with: corral drain --undo",
}

// admitting refuses new work while the supervisor is drained.
func (t *jobTable) admitting() error {
	if t.drain.Load() {
		return errDraining
	}
	return nil
}

// register counts a run, or refuses it if there are too many. It precedes any access to what the client named or
// passed, and so bounds what the client's own file system can block.
func (t *jobTable) register(r *run) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.admitting(); err != nil {
		return err
	}
	if n := len(t.live); n >= t.maxAll {
		return admit.TooMany(n, t.maxAll, "of this supervisor")
	}
	if n := t.perUser[r.peer.Payer()]; r.peer.UID != 0 && n >= t.maxPerUser {
		return admit.TooMany(n, t.maxPerUser, "per user")
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
	payer := r.peer.Payer()
	if t.perUser[payer]--; t.perUser[payer] == 0 {
		delete(t.perUser, payer)
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
	runs, list := t.seenBy(peer)
	for i, r := range runs { // reads files, and so without the lock
		list[i].CPU, list[i].Memory, list[i].MemoryNow = r.usage()
	}
	sort.Slice(list, func(i, k int) bool { return list[i].Started < list[k].Started })
	return list
}

// command opens the command line of a running job; nil: it is not known.
func (t *jobTable) command(id string) *os.File {
	r := fault.Get(&t.mu, func() *run { return t.live[id] })
	if r == nil {
		return nil
	}
	return r.command()
}

// seenBy returns the running jobs that peer may see, and their entries without usage.
func (t *jobTable) seenBy(peer host.Peer) (runs []*run, list []wire.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.live {
		if peer.UID != r.peer.UID && peer.UID != 0 {
			continue
		}
		runs = append(runs, r)
		list = append(list, wire.Entry{
			Job: r.id, UID: r.peer.UID, Started: r.started.UnixNano(), Repo: r.repo,
			Tool: r.claim.Tool, Runtime: r.claim.Runtime, Principal: r.claim.Principal, Artifact: r.claim.Artifact,
		})
	}
	return runs, list
}
