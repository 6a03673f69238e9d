package isolate

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"corral/cgroup"
	"corral/isolate/inside"
	"corral/isolate/scan"
	"corral/isolate/wire"
	"corral/job"
	"corral/seccomp"
)

// scannerMemory is what a scanner may have, in bytes.
const scannerMemory = 1 << 30

// scannerPatience bounds the wait for a scanner's answer; it bounds its own walks far below.
const scannerPatience = 10 * time.Second

// A scanner finds out which sensitive paths of a repository changed. Names in a repository are what jobs chose, so no
// privileged code reads them: the scanner is a process of ours that runs as a job does (a slot of its own, every limit
// and filter, the repository read-only) and lives as long as the jail. A nil scanner answers that it does not know.
type scanner struct {
	slot   *slot
	socket *wire.Conn

	quiet scanState

	mu   sync.Mutex // one request at a time
	dead bool       // guarded by mu
	kept [2]keptAt  // guarded by mu: the last answers to OpKeepHooks and OpKeepAll
	sent uint64     // guarded by mu: requests
}

// startScanner starts the jail's scanner and has it remember the repository as it is.
func (j *jail) startScanner() (*scanner, error) {
	limits := cgroup.Limits{MemoryBytes: scannerMemory, PIDs: 64}
	sl, err := j.newSlot(limits, seccomp.Scanner, true)
	if err != nil {
		return nil, err
	}
	var u undo
	defer u.run()
	u.push(sl.destroy)
	ours, theirs, err := wire.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	u.push(func() { ours.Close() })
	args := []string{"scan"}
	if j.repo.common != nil {
		args = append(args, j.repo.common.path)
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
		Rlimits: rlimits(job.Defaults(), 0), Repo: j.repo.path,
	}
	files, err := sl.addCommon(&plan, true)
	if err != nil {
		return nil, err
	}
	defer wire.CloseAll(files)
	files = append([]*os.File{mount, payload, null, null, theirs, j.s.programs.init}, files...)
	if err := sl.stub.Send(plan.Append(), files...); err != nil {
		return nil, err
	}
	theirs.Close() // so that the end of the scanner is the end of the socket
	if err := sl.started(); err != nil {
		return nil, err
	}
	s := &scanner{slot: sl, socket: ours}
	u.push(func() { s.quiet.close() })
	if _, err := s.ask(scan.OpBaseline, time.Time{}); err != nil {
		return nil, err
	}
	u.keep()
	return s, nil
}

// started waits for the report that the program was executed.
func (sl *slot) started() error {
	defer sl.within(slotPatience)()
	r, files, err := sl.report()
	wire.CloseAll(files)
	switch {
	case err != nil:
		return err
	case r.Kind == inside.Failed:
		return stepFailed(r)
	case r.Kind != inside.Started:
		return inside.ErrReport
	}
	return nil
}

var errNoScanner = errors.New("the scanner is gone")

// ask sends a request and waits for its answer.
func (s *scanner) ask(op scan.Op, since time.Time) (a scan.Answer, err error) {
	err = s.exchange(op, since, func(b []byte) (err error) {
		a, err = s.read(op, b)
		return err
	})
	return a, err
}

// changed asks what changed since a job began. The scanner tells of a change once, to who asks first: the other jobs that live
// in the jail then are told, too, before the next one can ask.
func (s *scanner) changed(since *jobWindow) (a scan.Answer, err error) {
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
		s.quiet.end(&a)
	}
	return a, err
}

// exchange sends a request and has its answer read. After a failure the scanner is not asked again.
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
	s.dead = err != nil && !errors.Is(err, scan.ErrTooMany) // which is an answer like any other
	return err
}

// answer is what the scanner says, until the next one.
func (s *scanner) answer(op scan.Op, since time.Time) ([]byte, error) {
	if since.IsZero() {
		since = time.Unix(0, 0)
	}
	if passes(op) {
		s.quiet.begin() // without an end, if the scanner fails
	}
	s.socket.SetDeadline(time.Now().Add(scannerPatience))
	if err := s.socket.Send(scan.AppendRequest(op, since)); err != nil {
		return nil, err
	}
	b, files, err := s.socket.Receive()
	if err == nil && op == scan.OpBaseline {
		s.quiet.events, err = takeEvents(files)
		return b, err
	}
	wire.CloseAll(files)
	return b, err
}

// passes says whether a request makes the scanner look at everything, from an empty queue of events on.
func passes(op scan.Op) bool { return op == scan.OpBaseline || op == scan.OpChanged }

// close ends the scanner.
func (s *scanner) close() {
	if s == nil {
		return
	}
	s.quiet.close()
	s.socket.Close()
	s.slot.destroy()
}

// watcher returns the jail's scanner. A session whose scanner is gone gets another one, and so does one whose jobs do not
// write to the repository, for what of ours does.
func (j *jail) watcher() *scanner {
	j.scannerMu.Lock()
	defer j.scannerMu.Unlock()
	if j.session == nil || j.session.imports() || j.scanner.lives() {
		return j.scanner
	}
	s, err := j.startScanner()
	if err != nil {
		j.s.config.Log.Warn("no scanner", "jail", j.name, "error", err)
		return j.scanner
	}
	j.scanner.close()
	j.scanner = s
	return s
}

// dropScanner does without a scanner that failed: the next job gets a jail whose scanner lives. A session stays, see watcher.
func (j *jail) dropScanner() {
	if j.session == nil {
		j.retire()
	}
}

func (s *scanner) lives() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.dead
}

// sensitive asks which sensitive paths changed since a job began, for its result r, unless nothing happened. No process of
// the job is left. Of jobs that live at the same time in one jail, each is told what any of them changed.
func (j *jail) sensitive(since *jobWindow, r *wire.Result) {
	if since.nothingHappened() {
		return
	}
	watcher := j.watcher()
	a, err := watcher.changed(since)
	if err != nil && !errors.Is(err, io.EOF) {
		j.s.config.Log.Warn("sensitive paths not looked at", "jail", j.name, "error", err)
	}
	if err != nil {
		j.dropScanner()
	}
	if told := since.otherAnswers(); told != (scan.Answer{}) {
		a = mergeAnswers(&a, &told)
	}
	// A scanner that was started later has taken for given what was changed before.
	r.Sensitive, r.More, r.Incomplete = sorted(a.Paths), a.More, a.Incomplete || err != nil || watcher != since.scanner
}

// sorted sorts paths that each end with NUL.
func sorted(paths string) string {
	return strings.Join(slices.Sorted(strings.SplitAfterSeq(paths, "\x00")), "")
}

// clockStep is the coarsest granularity of a file's time stamps (one jiffy at 100 Hz), in which a change can seem
// older than the moment before it.
const clockStep = 10 * time.Millisecond
