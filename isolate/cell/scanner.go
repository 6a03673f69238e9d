package cell

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"corral/cgroup"
	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/scan"
	"corral/isolate/wire"
	"corral/job"
	"corral/seccomp"
)

// ScannerMemory is a scanner's memory limit in bytes.
const ScannerMemory = 1 << 30

// scannerPatience is the timeout of a request to a scanner. The scanner bounds its own walks far below it.
const scannerPatience = 10 * time.Second

// A scanner finds out which sensitive paths of a repository changed. Jobs choose the names in a repository, so no
// privileged code reads them: the scanner is a process of ours that runs like a job (a slot of its own, every limit
// and filter, the repository read-only) and lives as long as the jail. Requests to a nil scanner fail with
// errNoScanner.
type scanner struct {
	slot   *Slot
	socket *wire.Conn

	state scanState

	mu   sync.Mutex    // serializes requests
	dead bool          // guarded by mu
	kept [2]cachedKept // guarded by mu: the last answers to OpKeepHooks and OpKeepAll
	sent uint64        // guarded by mu: number of requests
}

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
	files, err := sl.addCommon(&plan, true)
	if err != nil {
		return nil, err
	}
	defer wire.CloseAll(files)
	files = append([]*os.File{mount, payload, null, null, theirs, j.s.Programs.Init}, files...)
	if err := sl.stub.Send(plan.Append(), files...); err != nil {
		return nil, err
	}
	theirs.Close() // so that the socket closes when the scanner exits
	if err := sl.started(); err != nil {
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

// started waits for the report that the program was executed.
func (sl *Slot) started() error {
	defer sl.within(host.SlotPatience)()
	r, files, err := sl.Report()
	wire.CloseAll(files)
	switch {
	case err != nil:
		return err
	case r.Kind == inside.Failed:
		return StepFailed(r)
	case r.Kind != inside.Started:
		return inside.ErrReport
	}
	return nil
}

var errNoScanner = errors.New("no scanner is running")

// ask sends a request and returns its answer.
func (s *scanner) ask(op scan.Op, since time.Time) (a scan.Answer, err error) {
	err = s.exchange(op, since, func(b []byte) (err error) {
		a, err = s.read(op, b)
		return err
	})
	return a, err
}

// changed returns what changed since a job began. The scanner reports each change once, to the first request: the
// answer is shared with the other jobs that live in the jail before the next request can be made.
func (s *scanner) changed(since *Window) (a scan.Answer, err error) {
	err = s.exchange(scan.OpChanged, since.chainStart(), func(b []byte) (err error) {
		if a, err = s.read(scan.OpChanged, b); err == nil {
			since.shareAnswer(&a)
		}
		return err
	})
	return a, err
}

func (s *scanner) read(op scan.Op, b []byte) (scan.Answer, error) {
	a, err := scan.ReadAnswer(b)
	if err == nil && passes(op) {
		s.state.end(&a)
	}
	return a, err
}

// exchange sends a request and calls read with its answer. After a failure no further requests are sent.
func (s *scanner) exchange(op scan.Op, since time.Time, read func([]byte) error) error {
	if s == nil {
		return errNoScanner
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return errNoScanner
	}
	s.sent++
	b, err := s.answer(op, since)
	if err == nil {
		err = read(b)
	}
	s.dead = err != nil && !errors.Is(err, scan.ErrTooMany) // ErrTooMany is an ordinary answer
	return err
}

// answer returns the scanner's answer, which is valid until the next request.
func (s *scanner) answer(op scan.Op, since time.Time) ([]byte, error) {
	if since.IsZero() {
		since = time.Unix(0, 0)
	}
	if passes(op) {
		s.state.begin() // there is no matching end if the scanner fails
	}
	s.socket.SetDeadline(time.Now().Add(scannerPatience))
	if err := s.socket.Send(scan.AppendRequest(op, since)); err != nil {
		return nil, err
	}
	b, files, err := s.socket.Receive()
	if err == nil && op == scan.OpBaseline {
		s.state.events, err = takeEvents(files)
		return b, err
	}
	wire.CloseAll(files)
	return b, err
}

// passes reports whether op makes the scanner scan everything and empty the event queue first.
func passes(op scan.Op) bool { return op == scan.OpBaseline || op == scan.OpChanged }

// close ends the scanner.
func (s *scanner) close() {
	if s == nil {
		return
	}
	s.state.close()
	s.socket.Close()
	s.slot.destroy()
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

func (s *scanner) usable() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.dead
}

// Sensitive adds the sensitive paths that changed since a job began to its result r, unless nothing happened. No
// process of the job is left. If several jobs live in one jail at a time, each result has what any of them changed.
func (j *Jail) Sensitive(since *Window, r *wire.Result) {
	if since.nothingHappened() {
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
	if others := since.otherAnswers(); others != (scan.Answer{}) {
		a = mergeAnswers(&a, &others)
	}
	// A scanner that was started during the job has its changes in its baseline.
	r.Sensitive, r.More, r.Incomplete = sorted(a.Paths), a.More, a.Incomplete || err != nil || watcher != since.scanner
}

// sorted sorts paths that each end with NUL.
func sorted(paths string) string {
	return strings.Join(slices.Sorted(strings.SplitAfterSeq(paths, "\x00")), "")
}

// askKept requests the paths to protect, unless the last answer still holds.
func (s *scanner) askKept(op scan.Op) (a scan.KeptAnswer, err error) {
	if s != nil {
		if a, again := s.cachedAnswer(op); again {
			return a, nil
		}
	}
	err = s.exchange(op, time.Time{}, func(b []byte) (err error) {
		if a, err = scan.ReadKept(b); err == nil {
			s.kept[op-scan.OpKeepHooks] = cachedKept{true, a, s.state.pass()}
		}
		return err
	})
	return a, err
}
