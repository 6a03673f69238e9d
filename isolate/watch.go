package isolate

import (
	"context"
	"os"
	"sync"
	"syscall"
	"time"

	"corral/isolate/admit"
	"corral/isolate/cell"
	"corral/isolate/inside"
	"corral/isolate/wire"
)

// runIn runs the job in its slot.
func (s *Supervisor) runIn(
	ctx context.Context, sl *cell.Slot, r *run, q *admit.Request, door *doorUse, terminal func(*os.File),
) (wire.Result, error) {
	j, repo := sl.Jail(), q.Flags&wire.FlagNoRepo == 0
	since := j.OpenWindow(repo, r.protect)
	defer since.End()
	sl.EndOnOOM(func() { r.requestEnd(wire.Vanished) })
	stopWatching := s.watchUse(sl, r, q)
	defer stopWatching()
	var layer wire.Result
	stopLayer := j.WatchLayer(&layer) // first: the layer of a session without jobs has little room
	defer stopLayer()
	var err error
	r.starts()
	if r.sent, err = sl.Start(&cell.Job{
		Request: q, Repo: r.repo, Limits: r.limits, Protect: r.protect, Env: r.variables,
		Ready: door.ready,
	}); err != nil {
		return wire.Result{}, err
	}
	q.Close(s.probes, r.peer.Payer()) // the job has its own descriptors now: a pipe's other end must see EOF when the job ends
	result, err := s.watch(ctx, sl, r, terminal)
	door.close()
	stopLayer()
	stopWatching()
	if err != nil {
		return result, err
	}
	result.Wall = int64(time.Since(r.sent))
	result.LayerFull, result.FilesFull, result.RoomShort = layer.LayerFull, layer.FilesFull, layer.RoomShort
	result.Mounts = sl.Mounts()
	sl.Account(&result)
	// Also a job that may only read can have got a descriptor from one that writes.
	if repo && j.Scanned() {
		j.Sensitive(since, &result)
	}
	return result, nil
}

// watchUse starts to watch what the job in sl uses that no cgroup limits: disk space, and record locks. It ends a job that uses too
// much. stop may be called again.
func (s *Supervisor) watchUse(sl *cell.Slot, r *run, q *admit.Request) (stop func()) {
	stopDisk, stopLocks := func() {}, func() {}
	if q.Flags&wire.FlagNoRepo == 0 && !inside.Skips(s.config.switches.Skip, inside.DiskWatch) {
		stopDisk = sl.WatchDisk(r.peer.Payer(), r.limits, r.requestEnd)
	}
	if !inside.Skips(s.config.switches.Skip, inside.LockWatch) {
		stopLocks = s.locks.Watch(sl.Group(), func() { r.requestEnd(wire.OverLocks) })
	}
	return sync.OnceFunc(func() {
		stopDisk()
		stopLocks()
	})
}

// watch waits for the job's end, or causes it, and returns when no process of the job is left. For a job that ends by
// itself no other goroutine is involved, because each handover costs a wake-up.
func (s *Supervisor) watch(ctx context.Context, sl *cell.Slot, r *run, terminal func(*os.File)) (wire.Result, error) {
	result := wire.Result{Cgroup: s.instance.Tree.Layout()}
	r.setSlot(sl)
	defer r.endGrace()
	defer r.finish()
	stop := s.endOn(ctx, r)
	defer stop()
	gone, mine, err := follow(sl, r, &result, terminal)
	result.Outcome = r.finish()
	mine = r.endGrace() || mine
	if result.Outcome != wire.Exited {
		result.WaitStatus = endSignal(gone, result.WaitStatus)
	}
	if gone && err == nil {
		return result, nil
	}
	if mine { // otherwise whoever set the outcome kills the slot
		sl.Kill()
	}
	if waited := sl.AwaitGone(); err == nil {
		err = waited
	}
	return result, err
}

// endSignal returns the signal by which a job ended that did not exit by itself: SIGKILL, or that of its first process, for which an exit
// stands as well, if the job has ended in its time after SIGTERM.
func endSignal(gone bool, status uint32) uint32 {
	switch s := syscall.WaitStatus(status); {
	case !gone:
		return uint32(syscall.SIGKILL)
	case s.Signaled():
		return uint32(s.Signal())
	}
	return uint32(syscall.SIGTERM)
}

// endReason distinguishes a client that disconnected from a supervisor that is ending.
func (s *Supervisor) endReason() wire.Outcome {
	if s.ctx.Err() != nil {
		return wire.Vanished
	}
	return wire.Killed
}

// follow processes the stub's reports until the stub reports that no process of the job is left (gone), or its socket
// is closed because it died or another goroutine ends the job. mine is true if a report set the outcome. The error is
// not nil if the job did not start.
func follow(sl *cell.Slot, r *run, result *wire.Result, terminal func(*os.File)) (gone, mine bool, err error) {
	for {
		report, files, err := sl.Report()
		if err != nil {
			wire.CloseAll(files)
			return false, r.setOutcome(wire.Vanished) || mine, nil
		}
		if report.Kind == inside.Terminal && len(files) == 1 {
			terminal(files[0])
			files = nil
		}
		wire.CloseAll(files)
		switch report.Kind {
		case inside.Failed:
			return false, r.setOutcome(wire.Refused), cell.StepFailed(report)
		case inside.DeadlineOver:
			return false, r.setOutcome(wire.Deadline), nil
		case inside.Exited, inside.Gone:
			settled := r.setOutcome(wire.Exited)
			mine = mine || settled
			result.WaitStatus, result.TmpFull, result.Left = report.Status, report.Full(), report.Left()
			if report.Kind == inside.Gone {
				return true, mine, nil
			}
			// The stub ends the remaining processes. If that takes too long, the cgroup is killed, including the stub.
			if settled {
				r.killLater(sl)
			}
		}
	}
}
