package isolate

import (
	"context"
	"os"
	"sync"
	"time"

	inside "corral/isolate/jail"
	"corral/isolate/wire"
	"corral/job"
)

// runIn runs the job in its slot.
func (s *Supervisor) runIn(ctx context.Context, sl *slot, r *run, q *Request, terminal func(*os.File)) (wire.Result, error) {
	since := fileTime().Add(-clockStep)
	stopWatch := make(chan struct{})
	defer close(stopWatch)
	if err := sl.group.WatchOOM(stopWatch, func() { r.ask(wire.Vanished) }); err != nil {
		return wire.Result{}, err
	}
	if q.Flags&wire.FlagNoRepo == 0 {
		s.watchDisk(stopWatch, sl, r)
	}
	if err := s.place(sl, r, q); err != nil {
		return wire.Result{}, err
	}
	var layer wire.Result
	stopLayer := func() {}
	if ss := sl.jail.session; ss != nil {
		stopLayer = ss.watchLayer(&layer)
	}
	q.close() // the job has its own now: a pipe's other end must see the job's end
	start := time.Now()
	result, err := s.watch(ctx, sl, r, terminal)
	stopLayer()
	if err != nil {
		return result, err
	}
	result.Wall = int64(time.Since(start))
	result.LayerFull, result.FilesFull = layer.LayerFull, layer.FilesFull
	var scanned sync.WaitGroup
	if q.writes() && sl.jail.scanned() {
		scanned.Go(func() { sl.jail.sensitive(since, &result) })
	}
	sl.account(&result)
	scanned.Wait()
	return result, nil
}

// watch waits for the job's end, or brings it about, and returns when no process of the job is left.
func (s *Supervisor) watch(ctx context.Context, sl *slot, r *run, terminal func(*os.File)) (wire.Result, error) {
	reports := make(chan inside.Report)
	done := make(chan struct{})
	defer close(done)
	go sl.follow(reports, done, terminal)
	var deadline <-chan time.Time
	if r.limits.Wall != job.Unlimited {
		timer := time.NewTimer(r.limits.Wall)
		defer timer.Stop()
		deadline = timer.C
	}
	result := wire.Result{Cgroup: s.instance.tree.Layout()}
	gone := false
	for result.Outcome == 0 {
		select {
		case report, ok := <-reports:
			gone = ok && report.Kind == inside.Gone
			if err := note(&result, report, ok); err != nil {
				_ = sl.end(false, reports) // the stub is gone already, or about to be
				return result, err
			}
		case <-deadline:
			result.Outcome = wire.Deadline
		case result.Outcome = <-r.end:
		case signal := <-r.orders:
			_ = sl.stub.Send(inside.Order{Signal: int(signal.Number), Everyone: signal.Everyone}.Append())
		case <-ctx.Done():
			result.Outcome = s.whyDone()
		case <-sl.jail.ended:
			result.Outcome = wire.Vanished
		}
	}
	if gone {
		return result, nil
	}
	return result, sl.end(result.Outcome == wire.Exited, reports)
}

// whyDone tells a client that went away from a supervisor that ends.
func (s *Supervisor) whyDone() wire.Outcome {
	if s.ctx.Err() != nil {
		return wire.Vanished
	}
	return wire.Killed
}

// note takes a stub's report into the result. A report that the job did not start is an error.
func note(result *wire.Result, r inside.Report, ok bool) error {
	switch {
	case !ok:
		result.Outcome = wire.Vanished
	case r.Kind == inside.Failed:
		return stepFailed(r)
	case r.Kind == inside.Exited, r.Kind == inside.Gone:
		result.Outcome, result.WaitStatus = wire.Exited, r.Status
	case r.Kind == inside.DeadlineOver:
		result.Outcome = wire.Deadline
	}
	return nil
}

// follow passes on what the stub reports until it is gone or done is closed.
func (sl *slot) follow(reports chan<- inside.Report, done <-chan struct{}, terminal func(*os.File)) {
	defer close(reports)
	for {
		r, files, err := sl.report()
		if err != nil {
			wire.CloseAll(files)
			return
		}
		if r.Kind == inside.Terminal && len(files) == 1 {
			terminal(files[0])
			files = nil
		}
		wire.CloseAll(files)
		select {
		case reports <- r:
		case <-done:
			return
		}
	}
}

// end waits until no process of the job is left. When its first process exited, the stub ends the others and says so; in
// all other cases, or when that takes its time, the cgroup is killed and the stub with it.
func (sl *slot) end(exited bool, reports <-chan inside.Report) error {
	if exited && gone(reports) {
		return nil
	}
	if err := sl.group.Kill(); err != nil {
		return err
	}
	sl.stub.Close()
	return sl.wait(slotPatience)
}

// gone waits for the stub's word that it is the last process of the job.
func gone(reports <-chan inside.Report) bool {
	const patience = 100 * time.Millisecond
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case r, ok := <-reports:
			if !ok || r.Kind == inside.Gone {
				return ok
			}
		case <-timer.C:
			return false
		}
	}
}

// account reads what the job used and which limits it met.
func (sl *slot) account(r *wire.Result) {
	if u, err := sl.group.Usage(); err == nil {
		r.CPU, r.User, r.System = int64(u.CPU), int64(u.User), int64(u.System)
		r.PeakMemory, r.PeakPIDs, r.ReadBytes, r.WriteBytes = u.PeakMemory, u.PeakPIDs, u.IORead, u.IOWrite
	} else {
		sl.jail.report("usage not read", err)
	}
	if e, err := sl.group.Events(); err == nil {
		r.OOM, r.PIDsMax = e.OOM || e.OOMKills > 0, e.PIDsMax > 0
	} else {
		sl.jail.report("events not read", err)
	}
}
