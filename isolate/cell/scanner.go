package cell

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"corral/isolate/scan"
	"corral/isolate/wire"
)

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
func (s *scanner) changed(since *Window) (scan.Answer, error) {
	return s.pass(since.all, since.jail, since)
}

// pass requests what changed since the first of the jobs began that live in the jail, which has a key; own is the window of
// one of them, or nil. The answer is added to the windows of the others.
func (s *scanner) pass(all *liveWindows, jail *jailKey, own *Window) (a scan.Answer, err error) {
	err = s.exchange(scan.OpChanged, all.start(jail), func(b []byte) (err error) {
		if a, err = s.read(scan.OpChanged, b); err == nil {
			all.share(jail, own, &a)
		}
		return err
	})
	return a, err
}

// maxCatchUp is how many passes may be made before a job whose sensitive paths are protected, in a repository that is too large
// for one.
const maxCatchUp = 3

// catchUp has the scanner remember what was changed in the repository since its last pass, by others than jobs that still
// live: the next job is neither blamed for it, nor does it go unnoticed that the job removes it. It makes at most the
// given number of passes.
func (s *scanner) catchUp(all *liveWindows, jail *jailKey, passes int) error {
	for range passes {
		if s == nil || s.state.quiet() {
			return nil
		}
		if a, err := s.pass(all, jail, nil); err != nil || !a.Unfinished {
			return err
		}
	}
	return nil
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
	s.dead = true // also after a panic: the next answer could be to this request
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

// stateOrNil returns the scanner's state, which stands for the scanner, or nil if there is none.
func (s *scanner) stateOrNil() *scanState {
	if s == nil {
		return nil
	}
	return &s.state
}

func (s *scanner) usable() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.dead
}

// sorted sorts paths that each end with NUL.
func sorted(paths string) string {
	return strings.Join(slices.Sorted(strings.SplitAfterSeq(paths, "\x00")), "")
}

// cachedAnswer returns the last answer to op if it is still valid.
func (s *scanner) cachedAnswer(op scan.Op) (scan.KeptAnswer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kept[op-scan.OpKeepHooks]
	if !k.given || s.dead {
		return scan.KeptAnswer{}, false
	}
	return k.answer, s.state.unchangedSince(k.pass)
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
