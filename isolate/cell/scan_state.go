package cell

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/isolate/scan"
	"corral/isolate/wire"
)

// Most jobs change nothing that a scanner looks for. The scanner watches what it has scanned by inotify(7), and the
// supervisor holds the same inotify instance, but only polls it: the events show what jobs did, and only the scanner
// may read them. As long as the queue is empty and no other scan was made since the job began, a scan would find
// nothing.

// scanState is what the supervisor knows about a scanner's passes without a request. A pass is a scan of everything
// watched.
type scanState struct {
	events *os.File // the scanner's inotify instance, or nil; set before the scanner is used

	mu     sync.Mutex
	busy   bool      // guarded by mu: a pass is in progress
	passes uint64    // guarded by mu: number of passes that found events in the queue
	armed  bool      // guarded by mu: see scan.Answer
	held   time.Time // guarded by mu: end of the last pass whose answer had Held or not Armed, see scan.Answer
}

// begin records the start of a pass. From now on the queue may be empty although something happened.
func (q *scanState) begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy = true
}

// end records the end of a pass.
func (q *scanState) end(a *scan.Answer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy, q.armed = false, a.Armed
	if a.Heard || !a.Armed {
		q.passes++
	}
	if a.Held || !a.Armed {
		q.held = time.Now()
	}
}

// pass returns the number of passes that found events.
func (q *scanState) pass() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.passes
}

// unchangedSince reports whether nothing has happened since pass returned this number. held is the latest time at
// which a process that now holds a sensitive file open can have opened it. The queue is checked first: a pass that
// empties it has set busy before. So a pass that was in progress when the number was read has ended since.
func (q *scanState) unchangedSince(pass uint64) (nothing bool, held time.Time) {
	if q.events == nil || host.SomethingToRead(q.events) {
		return false, time.Time{}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.armed && !q.busy && pass == q.passes, q.held
}

// close closes the supervisor's descriptor of the inotify instance. It must not be the last one: closing that would
// wait for the kernel to remove each watch.
func (q *scanState) close() {
	if q.events != nil {
		q.events.Close()
	}
}

// takeEvents takes over the descriptors of a scanner's first answer and returns the inotify instance, or nil if there
// are none. Any other file is refused, because poll(2) on it could do anything.
func takeEvents(files []*os.File) (*os.File, error) {
	if len(files) == 0 {
		return nil, nil
	}
	err := errors.New("the scanner sent a descriptor that is not an inotify instance")
	if len(files) == 1 {
		// The name is checked first, because it comes from the kernel: fstatfs(2) can block on another file system. No
		// path begins like this.
		var fs unix.Statfs_t
		fd := int(files[0].Fd())
		name, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)) // on failure name is "", which does not match
		if name == "anon_inode:inotify" && unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.ANON_INODE_FS_MAGIC {
			return files[0], nil
		}
	}
	wire.CloseAll(files)
	return nil, err
}

// A cachedKept is an answer that is valid while nothing has happened since.
type cachedKept struct {
	given  bool
	answer scan.KeptAnswer
	pass   uint64 // the number of passes when it was given
}

// cachedAnswer returns the last answer to op if it is still valid.
func (s *scanner) cachedAnswer(op scan.Op) (scan.KeptAnswer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kept[op-scan.OpKeepHooks]
	if !k.given || s.dead {
		return scan.KeptAnswer{}, false
	}
	nothing, _ := s.state.unchangedSince(k.pass)
	return k.answer, nothing
}

// A Window is the time from a job's start to the check of sensitive paths after its end.
type Window struct {
	jail    *Jail
	at      time.Time // start by the clock of file times, less one step
	chain   time.Time // start of the earliest job from which descriptors can have reached this one; zero if unknown
	scanner *scanner  // the jail's scanner at the start; may be nil
	pass    uint64    // its number of passes at the start

	// Guarded by liveWindows.mu: what the scanner reported to other jobs of the jail during this window.
	found scan.Answer
}

// liveWindows holds the windows of all live jobs.
type liveWindows struct {
	mu   sync.Mutex
	live map[*Window]struct{} // guarded by mu
}

// OpenWindow records that a job is about to start. The caller must call end when no process of the job is left and
// its result is complete.
func (j *Jail) OpenWindow() *Window {
	m := &Window{jail: j, at: host.FileTime().Add(-host.ClockStep), chain: time.Now()}
	if !j.s.Only() {
		m.chain = time.Time{}
	}
	j.scannerMu.Lock()
	m.scanner = j.scanner
	j.scannerMu.Unlock()
	if m.scanner != nil {
		m.pass = m.scanner.state.pass()
	}
	all := &j.s.windows
	all.mu.Lock()
	defer all.mu.Unlock()
	for other := range all.live {
		if other.chain.Before(m.chain) && other.jail.key.overlaps(&j.key) {
			m.chain = other.chain
		}
	}
	if all.live == nil {
		all.live = map[*Window]struct{}{}
	}
	all.live[m] = struct{}{}
	return m
}

// chainStart returns the earliest start of the jobs that live in the jail. The scanner reports each change once, so a
// request must cover what any of them changed.
func (m *Window) chainStart() time.Time {
	all := &m.jail.s.windows
	all.mu.Lock()
	defer all.mu.Unlock()
	first := m.at
	for other := range all.live {
		if other.jail == m.jail && other.at.Before(first) {
			first = other.at
		}
	}
	return first
}

// shareAnswer adds an answer to the windows of the other jobs that live in the jail, because the scanner will not
// report the same change again.
func (m *Window) shareAnswer(a *scan.Answer) {
	if a.Paths == "" && a.More == 0 && !a.Incomplete {
		return
	}
	all := &m.jail.s.windows
	all.mu.Lock()
	defer all.mu.Unlock()
	for other := range all.live {
		if other != m && other.jail == m.jail {
			other.found = mergeAnswers(&other.found, a)
		}
	}
}

// otherAnswers returns what shareAnswer added to this window.
func (m *Window) otherAnswers() scan.Answer {
	all := &m.jail.s.windows
	all.mu.Lock()
	defer all.mu.Unlock()
	return m.found
}

// mergeAnswers merges two answers to OpChanged. If the paths do not fit, the two take turns until the room is used
// up.
func mergeAnswers(a, b *scan.Answer) scan.Answer {
	sum := scan.Answer{More: a.More + b.More, Incomplete: a.Incomplete || b.Incomplete}
	var paths strings.Builder
	seen := map[string]bool{}
	for _, path := range scan.InTurn(strings.SplitAfter(a.Paths, "\x00"), strings.SplitAfter(b.Paths, "\x00")) {
		switch {
		case path == "" || seen[path]:
		case paths.Len()+len(path) > scan.MaxPaths:
			sum.More++
		default:
			seen[path] = true
			paths.WriteString(path)
		}
	}
	sum.Paths = paths.String()
	return sum
}

// End removes the window.
func (m *Window) End() {
	all := &m.jail.s.windows
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.live, m)
}

// nothingHappened reports whether a scan would find no change since the window opened. No process of the job is left.
//
// inotify reports open(2) but not stores through mmap(2). A process that opened a file before the last pass can have
// passed the descriptor, through a socket in the repository, to a job that lived at the same time, and that job to
// the next. If this job can be part of such a chain, a scan is made.
func (m *Window) nothingHappened() bool {
	if m.scanner == nil || !m.jail.s.Only() {
		return false
	}
	nothing, held := m.scanner.state.unchangedSince(m.pass)
	return nothing && m.chain.After(held)
}

// overlaps reports whether jobs in jails with the two keys can have a file in common: one directory may be inside the
// other, also under another name.
func (k *jailKey) overlaps(l *jailKey) bool {
	return k.Dev == l.Dev || k.common.Path != "" || l.common.Path != ""
}
