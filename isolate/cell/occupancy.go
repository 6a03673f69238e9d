package cell

import (
	"log/slog"
	"sync"
	"time"

	"corral/internal/fault"
)

// An occupancy counts the jobs and slots of a jail, and decides when the jail ends.
type occupancy struct {
	log *slog.Logger
	end func() // ends the jail; may be called repeatedly and with mu locked

	work sync.WaitGroup // slots that exist; incremented under mu

	mu        fault.Mutex
	idle      time.Duration // guarded by mu: how long an unused jail is kept
	jobs      int           // guarded by mu: jobs that run in the jail or are about to
	idleTimer *time.Timer   // guarded by mu: drops the jail when it fires
	dropped   bool          // guarded by mu
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
