package cell

import (
	"log/slog"
	"sync"
	"time"

	"corral/internal/fault"
)

// maxDying is the number of memory cgroups of ended jobs, roughly 100 KiB of kernel memory each, above which their
// cached files are reclaimed. That happens only after the jail has been unused for reclaimRest, because the next job
// has to read its files from disk again.
const (
	maxDying    = 256
	reclaimRest = 10 * time.Second
)

// An occupancy counts the jobs and slots of a jail, and decides when the jail ends and when its memory is reclaimed.
type occupancy struct {
	log     *slog.Logger
	rest    time.Duration // how long a jail has been unused when reclaim is called
	dying   int           // number of removed memory cgroups above which reclaim is called
	end     func()        // ends the jail; may be called repeatedly and with mu locked
	reclaim func()        // drops cached files so that the kernel frees removed cgroups

	work sync.WaitGroup // slots that exist; incremented under mu

	mu           fault.Mutex
	idle         time.Duration // guarded by mu: how long an unused jail is kept
	jobs         int           // guarded by mu: jobs that run in the jail or are about to
	idleTimer    *time.Timer   // guarded by mu: drops the jail when it fires
	reclaimTimer *time.Timer   // guarded by mu: calls reclaimUnused
	dyingGroups  int           // guarded by mu: memory cgroups removed since the last reclaim
	dropped      bool          // guarded by mu
}

// use counts one more user of the jail. It returns false if the jail is being dropped.
func (o *occupancy) use() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dropped {
		return false
	}
	o.jobs++
	if o.idleTimer != nil {
		o.idleTimer.Stop()
		o.idleTimer = nil
	}
	if o.reclaimTimer != nil {
		o.reclaimTimer.Stop()
		o.reclaimTimer = nil
	}
	return true
}

// Leave ends a use. The last one starts the idle timer, or ends the jail if it was retired.
func (o *occupancy) Leave() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.jobs--
	switch {
	case o.jobs > 0:
	case !o.dropped:
		o.idleTimer = fault.AfterFunc(o.log, "an idle jail", o.idle, func() { o.dropUnused() })
		if o.dyingGroups >= o.dying {
			o.reclaimTimer = fault.AfterFunc(o.log, "an idle jail", o.rest, o.reclaimUnused)
		}
	default:
		o.end()
	}
}

// addSlot counts one more slot, which the jail's end waits for. It returns false if the jail is being dropped. The
// slot's end calls work.Done.
func (o *occupancy) addSlot() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dropped {
		return false
	}
	o.work.Add(1)
	return true
}

// alive reports whether the jail is not being dropped.
func (o *occupancy) alive() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.dropped
}

// removedGroup counts a removed memory cgroup.
func (o *occupancy) removedGroup() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dyingGroups++
}

// reclaimUnused calls reclaim, unless a job has come.
func (o *occupancy) reclaimUnused() {
	if o.beginReclaim() {
		defer o.work.Done()
		o.reclaim()
	}
}

// beginReclaim counts a reclaim as work, unless a job has come.
func (o *occupancy) beginReclaim() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.jobs > 0 || o.dropped {
		return false
	}
	o.dyingGroups = 0
	o.work.Add(1)
	return true
}

// retire keeps further jobs from entering the jail. It ends when the jobs in it have ended.
func (o *occupancy) retire() { o.markDropped(false) }

// Retire keeps further jobs from entering the jail, and ends it when no job is in it any more.
func (o *occupancy) Retire() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dropped {
		return
	}
	o.dropped = true
	if o.jobs == 0 { // otherwise Leave does it
		o.end()
	}
}

// setIdle changes how long the jail is kept when it becomes unused from now on.
func (o *occupancy) setIdle(idle time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.idle = idle
}

// dropUnused drops the jail if no job is in it or about to be.
func (o *occupancy) dropUnused() bool {
	if !o.markDropped(true) {
		return false
	}
	o.end()
	return true
}

// markDropped keeps further jobs from entering. It returns false if the jail was marked already, or if onlyUnused is
// set and the jail is in use.
func (o *occupancy) markDropped(onlyUnused bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dropped || onlyUnused && o.jobs > 0 {
		return false
	}
	o.dropped = true
	return true
}
