package isolate

import (
	"context"
	"os"
	"sync"
	"time"

	"corral/isolate/inside"
	"corral/isolate/wire"
)

// runIn runs the job in its slot.
func (s *Supervisor) runIn(ctx context.Context, sl *slot, r *run, q *Request, terminal func(*os.File)) (wire.Result, error) {
	since := sl.jail.openWindow()
	defer since.end()
	sl.job.Store(r)
	stopDisk := func() {}
	if q.Flags&wire.FlagNoRepo == 0 {
		stopDisk = sync.OnceFunc(s.watchDisk(sl, r))
		defer stopDisk()
	}
	stopLocks := s.locks.watch(sl, r)
	defer stopLocks()
	if err := s.place(sl, r, q); err != nil {
		return wire.Result{}, err
	}
	var layer wire.Result
	stopLayer := func() {}
	if ss := sl.jail.session; ss != nil {
		stopLayer = ss.watchLayer(&layer)
	}
	s.probes.closeRequest(r.peer.payer(), q) // the job has its own now: a pipe's other end must see the job's end
	start := time.Now()
	result, err := s.watch(ctx, sl, r, terminal)
	stopLayer()
	stopDisk()
	overLocks := stopLocks()
	if err != nil {
		return result, err
	}
	result.Wall = int64(time.Since(start))
	result.LayerFull, result.FilesFull = layer.LayerFull, layer.FilesFull
	sl.account(&result)
	result.OOM = result.OOM || overLocks // they are memory
	if q.writes() && sl.jail.scanned() {
		sl.jail.sensitive(since, &result)
	}
	return result, nil
}

// watch waits for the job's end, or brings it about, and returns when no process of the job is left. On the way of a job
// that ends by itself, this goroutine is the only one: each hand-over to another costs a wake-up.
func (s *Supervisor) watch(ctx context.Context, sl *slot, r *run, terminal func(*os.File)) (wire.Result, error) {
	result := wire.Result{Cgroup: s.instance.tree.Layout()}
	r.begin(sl)
	stop := s.with(ctx, r)
	defer stop()
	gone, mine, err := sl.follow(r, &result, terminal)
	result.Outcome = r.finish(mine)
	if gone && err == nil && result.Outcome == wire.Exited {
		return result, nil
	}
	if mine { // else who asked for the end has done it
		sl.kill()
	}
	if waited := sl.wait(s.config.ending); err == nil {
		err = waited
	}
	return result, err
}

// whyDone tells a client that went away from a supervisor that ends.
func (s *Supervisor) whyDone() wire.Outcome {
	if s.ctx.Err() != nil {
		return wire.Vanished
	}
	return wire.Killed
}

// follow takes in what the stub reports, until it says that no process of the job is left or says nothing more: it is gone,
// or who ends the job closed its socket. mine is that the reports settled why the job ended. A report that the job did not
// start is an error.
func (sl *slot) follow(r *run, result *wire.Result, terminal func(*os.File)) (gone, mine bool, err error) {
	for {
		report, files, err := sl.report()
		if err != nil {
			wire.CloseAll(files)
			return false, r.settle(wire.Vanished) || mine, nil
		}
		if report.Kind == inside.Terminal && len(files) == 1 {
			terminal(files[0])
			files = nil
		}
		wire.CloseAll(files)
		switch report.Kind {
		case inside.Failed:
			return false, r.settle(wire.Refused), stepFailed(report)
		case inside.DeadlineOver:
			return false, r.settle(wire.Deadline), nil
		case inside.Exited, inside.Gone:
			settled := r.settle(wire.Exited)
			mine = mine || settled
			if settled {
				result.WaitStatus = report.Status
			}
			if report.Kind == inside.Gone || !settled {
				return report.Kind == inside.Gone, mine, nil
			}
			// The stub ends the others. When that takes its time, the cgroup is killed, and the stub with it.
			defer after(lastPatience, sl.kill)()
		}
	}
}

// lastPatience is how long the stub may take to end what a job left running.
const lastPatience = 100 * time.Millisecond

// kill ends every process of the slot, the stub too. Who follows its reports hears no more of it.
func (sl *slot) kill() {
	if err := sl.group.Kill(); err != nil {
		sl.jail.report("processes", err)
	}
	sl.stub.Close()
}

// account reads what the job used and which limits it met.
func (sl *slot) account(r *wire.Result) {
	u, e, err := sl.group.Account()
	if err != nil {
		sl.jail.report("usage not read", err)
	}
	r.CPU, r.User, r.System = int64(u.CPU), int64(u.User), int64(u.System)
	r.PeakMemory, r.PeakPIDs, r.ReadBytes, r.WriteBytes = u.PeakMemory, u.PeakPIDs, u.IORead, u.IOWrite
	r.OOM, r.PIDsMax = e.OOM || e.OOMKills > 0, e.PIDsMax > 0
}
