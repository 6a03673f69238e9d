package cell

import (
	"errors"
	"io"
	"os"
	"time"

	"corral/cgroup"
	"corral/internal/fault"
	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/scan"
	"corral/isolate/wire"
	"corral/job"
	"corral/seccomp"
)

// ScannerMemory is a scanner's memory limit in bytes.
const ScannerMemory = 1 << 30

// startScanner starts a scanner for the jail, which records the current state of the repository as its baseline.
func (j *Jail) startScanner() (*scanner, error) {
	limits := cgroup.Limits{MemoryBytes: ScannerMemory, PIDs: 64}
	sl, err := j.newSlot(limits, seccomp.Scanner, true)
	if err != nil {
		return nil, err
	}
	var u host.Cleanup
	defer u.Run()
	u.Push(sl.destroy)
	ours, theirs, err := wire.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	u.Push(func() { ours.Close() })
	args := []string{"scan"}
	if j.repo.Common != nil {
		args = append(args, j.repo.Common.Path)
	}
	payload, err := wire.NewPayload(args, []string{"GOMAXPROCS=1", "GOMEMLIMIT=768MiB"})
	if err != nil {
		return nil, err
	}
	defer payload.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	mount, err := sl.mount(true)
	if err != nil {
		return nil, err
	}
	defer mount.Close()
	plan := inside.Plan{
		ReadOnly: true, Stdin: true, ExecFD: true, SayStarted: true, TmpBytes: sl.tmp[0], TmpInodes: sl.tmp[1],
		Rlimits: host.Rlimits(job.Defaults(), 0), Repo: j.repo.Path,
	}
	files, err := sl.addCommon(&plan, func() (*os.File, error) { return sl.common(true) })
	if err != nil {
		return nil, err
	}
	defer wire.CloseAll(files)
	files = append([]*os.File{mount, payload, null, null, theirs, j.s.Programs.Init}, files...)
	if err := sl.stub.conn.Send(plan.Append(), files...); err != nil {
		return nil, err
	}
	theirs.Close() // so that the socket closes when the scanner exits
	if err := sl.stub.started(); err != nil {
		return nil, err
	}
	s := &scanner{slot: sl, socket: ours}
	u.Push(func() { s.state.close() })
	if _, err := s.ask(scan.OpBaseline, time.Time{}); err != nil {
		return nil, err
	}
	u.Cancel()
	return s, nil
}

// OpenWindow records that a job is about to start. If repo is set, the job sees the repository, so the scanner takes note of
// its present state, completely if paths are to be protected. The caller must call End when no process of the job is
// left and its result is complete.
func (j *Jail) OpenWindow(repo bool, p job.Protection) *Window {
	if repo && j.Scanned() {
		passes := 1
		if p != job.ProtectNone {
			passes = maxCatchUp
		}
		if err := j.watcher().catchUp(&j.s.windows, &j.key, passes); err != nil { // the check after the job reports that it is incomplete
			j.s.Log.Warn("state of sensitive paths not recorded", "jail", j.name, "error", err)
		}
	}
	state := fault.Get(&j.scannerMu, func() *scanState { return j.scanner.stateOrNil() })
	return j.s.windows.open(&j.key, state, j.s.Only())
}

// watcher returns the jail's scanner. In a session a dead scanner is replaced, and one is started if there is none
// because the jobs do not write to the repository: corral's own tools do.
func (j *Jail) watcher() *scanner {
	j.scannerMu.Lock()
	defer j.scannerMu.Unlock()
	if j.session == nil || j.session.Import || j.scanner.usable() {
		return j.scanner
	}
	s, err := j.startScanner()
	if err != nil {
		j.s.Log.Warn("no scanner", "jail", j.name, "error", err)
		return j.scanner
	}
	j.scanner.close()
	j.scanner = s
	return s
}

// dropScanner retires the jail after its scanner failed, so that the next job gets a jail with a new one. A session's
// jail stays, see watcher.
func (j *Jail) dropScanner() {
	if j.session == nil {
		j.retire()
	}
}

// Sensitive adds the sensitive paths that changed since a job began to its result r, unless nothing happened. No
// process of the job is left. If several jobs live in one jail at a time, each result has what any of them changed.
func (j *Jail) Sensitive(since *Window, r *wire.Result) {
	if j.s.Only() && since.nothingHappened() {
		return
	}
	watcher := j.watcher()
	a, err := watcher.changed(since)
	if err != nil && !errors.Is(err, io.EOF) {
		j.s.Log.Warn("sensitive paths not checked", "jail", j.name, "error", err)
	}
	if err != nil {
		j.dropScanner()
	}
	if a.Lost {
		j.s.Log.Info("more files came and went than are followed: a sensitive path that was changed and put back may not be named", "jail", j.name)
	}
	if others := since.otherAnswers(); others != (scan.Answer{}) {
		a = mergeAnswers(&a, &others)
	}
	// A scanner that was started during the job has its changes in its baseline.
	r.Missed = a.Missed
	r.Sensitive, r.More, r.Incomplete = sorted(a.Paths), a.More, a.Incomplete || err != nil || watcher.stateOrNil() != since.state
}
