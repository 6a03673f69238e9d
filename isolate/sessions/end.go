package sessions

import (
	"errors"
	"time"

	"corral/internal/fault"
	"corral/job"
)

func (ss *Session) leave() {
	fault.With(&ss.mu, func() {
		ss.jobs--
		ss.used = time.Now()
	})
	ss.armIdleTimer()
}

// use counts one more job. It returns false if the session is ending.
func (ss *Session) use() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.ending || ss.retired {
		return false
	}
	ss.jobs++
	ss.used = time.Now()
	if ss.timer != nil {
		ss.timer.Stop()
		ss.timer = nil
	}
	return true
}

// retiredIdle is how soon after its last job a retired session ends.
const retiredIdle = time.Second

// Retire lets no further job into the session, which ends soon after those in it. What is kept of it is decided as when it expires.
func (ss *Session) Retire() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.retired, ss.idle = true, min(ss.idle, retiredIdle)
}

// armIdleTimer starts the idle timer of a session without jobs.
func (ss *Session) armIdleTimer() {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.jobs > 0 || ss.ending || ss.timer != nil {
		return
	}
	ss.timer = fault.AfterFunc(ss.m.Log, "an idle session", ss.idle, ss.expireIfIdle)
}

// expireIfIdle ends a session that has been idle for its timeout. Unreviewed changes are kept.
func (ss *Session) expireIfIdle() {
	if !ss.m.Work.Begin() {
		return
	}
	defer ss.m.Work.Done()
	// A half-imported root file system is not kept.
	_, err := ss.endIf(!ss.imports(), endOptions{onlyIdle: true})
	ss.LogEnd(err)
}

// LogEnd logs why a session did not end properly, which no client is told. Refusals were logged before.
func (ss *Session) LogEnd(err error) {
	if err != nil && !errors.As(err, new(*job.Refusal)) {
		ss.m.Log.Error("session", "session", ss.id, "error", err)
	}
}

// end ends the session and every job in it, and waits for that. With keep, an overlay with changes or an imported
// root file system is kept; end returns whether it was. If an overlay cannot be kept the session continues, and the
// error is a *job.Refusal.
func (ss *Session) end(keep bool) (bool, error) { return ss.endIf(keep, endOptions{asked: true}) }

// endOptions say for which reason a session ends.
type endOptions struct {
	onlyIdle bool // it has had no job for its time: do nothing if jobs run
	asked    bool // a client waits for the answer, and is told if data was lost. Else the layer is kept as it is, which remembers that
}

// endIf is end for a reason.
func (ss *Session) endIf(keep bool, o endOptions) (bool, error) {
	ss.endMu.Lock()
	defer ss.endMu.Unlock()
	first := ss.beginEnd(keep, o.onlyIdle)
	switch {
	case !first && o.onlyIdle:
		return false, nil
	case first && keep && ss.workspace == job.Overlay:
		if err := ss.ensureKeepable(); err != nil && (o.asked || !ss.lost()) {
			ss.cancelEnd()
			return false, err
		}
	}
	ss.jail.Drop()
	ss.jail.AwaitGone()
	return ss.kept, ss.err
}

// beginEnd keeps new jobs from starting and decides whether the layer is kept. The first caller decides; beginEnd
// returns whether this was the first. With onlyIdle, it does nothing to a session with running jobs and returns
// false.
func (ss *Session) beginEnd(keep, onlyIdle bool) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.ending || onlyIdle && ss.jobs > 0 {
		return false
	}
	ss.ending, ss.keep = true, keep
	if ss.timer != nil {
		ss.timer.Stop()
		ss.timer = nil
	}
	return true
}

// cancelEnd undoes beginEnd. The session ends at the next request, or when it has been idle for its timeout.
func (ss *Session) cancelEnd() {
	fault.With(&ss.mu, func() { ss.ending = false })
	ss.armIdleTimer()
}

// EndWithClient ends the session together with the connection that opened it. A client that is killed cannot
// choose to keep or discard the changes of its jobs, so they are kept. If they cannot be kept, the session continues.
func (ss *Session) EndWithClient() error {
	_, err := ss.endIf(ss.keeps(), endOptions{})
	return err
}

// EndSessions keeps new jobs from starting in the open sessions, and decides what is kept of them, because the
// supervisor ends.
func (m *Manager) EndSessions() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ss := range m.all {
		ss.beginEnd(ss.keeps(), false)
	}
}

// keeps reports whether the session's changes are kept when it ends, unless a client discards them.
func (ss *Session) keeps() bool { return ss.workspace == job.Overlay && !ss.imports() }
