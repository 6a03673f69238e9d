package isolate

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/scan"
	"corral/isolate/wire"
)

// Most jobs change nothing that a scanner looks for. It watches what it looked at, by inotify(7), and the supervisor has that
// instance too, but for poll(2) alone: what there is to read says what jobs did, and is the scanner's to read. As long as
// there is nothing, and the scanner was not asked since the job began, asking it now would find nothing.

// scanState is what is known of a scanner's passes without asking it.
type scanState struct {
	events *os.File // its inotify instance; nil: none. Set before the scanner is used

	mu     sync.Mutex
	busy   bool      // guarded by mu: a pass is under way
	passes uint64    // guarded by mu: those that found events in the queue
	armed  bool      // guarded by mu: see scan.Answer
	held   time.Time // guarded by mu: when the last pass ended that said so, see scan.Answer
}

// begin notes that a pass begins. From here on what happened may be gone from the queue.
func (q *scanState) begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy = true
}

// end notes its end.
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

// pass returns the count of passes.
func (q *scanState) pass() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.passes
}

// unchangedSince says whether nothing happened unchangedSince the count of passes was pass, and when who holds a sensitive file open may have
// opened it at the latest. The queue is looked at first: a pass that empties it has begun before. So one that was
// under way when pass was counted has ended unchangedSince.
func (q *scanState) unchangedSince(pass uint64) (nothing bool, held time.Time) {
	if q.events == nil || somethingToRead(q.events) {
		return false, time.Time{}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.armed && !q.busy && pass == q.passes, q.held
}

// close gives the instance back. It is not the last to do so: that would wait for the kernel to let go of each watch.
func (q *scanState) close() {
	if q.events != nil {
		q.events.Close()
	}
}

// somethingToRead says whether f has, or cannot be asked.
func somethingToRead(f *os.File) bool {
	conn, err := f.SyscallConn()
	if err != nil {
		return true
	}
	some := true
	err = conn.Control(func(fd uintptr) {
		n, err := poll(fd)
		some = err != nil || n != 0
	})
	return some || err != nil
}

// takeEvents takes over what came with a scanner's first answer: one inotify instance, or nothing. Of another file, poll(2)
// could do anything.
func takeEvents(files []*os.File) (*os.File, error) {
	if len(files) == 0 {
		return nil, nil
	}
	err := errors.New("the scanner sent something else than an inotify instance")
	if len(files) == 1 {
		// The name first, which is the kernel's own: a file system may take its time to answer. No path begins so.
		var fs unix.Statfs_t
		fd := int(files[0].Fd())
		name, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)) // "" is not the name
		if name == "anon_inode:inotify" && unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.ANON_INODE_FS_MAGIC {
			return files[0], nil
		}
	}
	wire.CloseAll(files)
	return nil, err
}

// A keptAt is an answer that still holds if nothing happened since.
type keptAt struct {
	given  bool
	answer scan.KeptAnswer
	pass   uint64 // the count of passes when it was given
}

// keptAgain returns the last answer of its kind if it still holds.
func (s *scanner) keptAgain(op scan.Op) (scan.KeptAnswer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kept[op-scan.OpKeepHooks]
	if !k.given || s.dead {
		return scan.KeptAnswer{}, false
	}
	nothing, _ := s.quiet.unchangedSince(k.pass)
	return k.answer, nothing
}

// A jobWindow is when a job begins.
type jobWindow struct {
	jail    *jail
	at      time.Time // by the clock of files, less a step
	chain   time.Time // when the first job began of those from which descriptors can have come to this one; zero: it is not known
	scanner *scanner  // the jail's then; may be nil
	pass    uint64    // its count of passes

	found scan.Answer // guarded by mu of liveWindows: what the scanner told of while this job lived, to other jobs of the jail
}

// liveWindows are those of live jobs.
type liveWindows struct {
	mu   sync.Mutex
	live map[*jobWindow]struct{} // guarded by mu
}

// openWindow notes that a job begins, before it can do anything. The caller must end it when no process of the job is left and its
// result is made.
func (j *jail) openWindow() *jobWindow {
	m := &jobWindow{jail: j, at: fileTime().Add(-clockStep), chain: time.Now()}
	if !j.s.config.only() {
		m.chain = time.Time{}
	}
	j.scannerMu.Lock()
	m.scanner = j.scanner
	j.scannerMu.Unlock()
	if m.scanner != nil {
		m.pass = m.scanner.quiet.pass()
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
		all.live = map[*jobWindow]struct{}{}
	}
	all.live[m] = struct{}{}
	return m
}

// chainStart returns when the first job of those began that live in the jail. What any of them changes is told once.
func (m *jobWindow) chainStart() time.Time {
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

// shareAnswer keeps an answer for the other jobs that live in the jail: the scanner will not say the same again.
func (m *jobWindow) shareAnswer(a *scan.Answer) {
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

// otherAnswers returns what tell has kept for this job.
func (m *jobWindow) otherAnswers() scan.Answer {
	all := &m.jail.s.windows
	all.mu.Lock()
	defer all.mu.Unlock()
	return m.found
}

// mergeAnswers returns what two answers to OpChanged name, as far as there is room: the first ones of both.
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

// end forgets the window.
func (m *jobWindow) end() {
	all := &m.jail.s.windows
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.live, m)
}

// nothingHappened says whether the jail's scanner would find nothing that happened since. No process of the job is left.
//
// A store into mapped memory of a file is no event, but to open the file is one. Whoever opened it before the last pass may have
// passed the descriptor on, through a socket in the repository, to a job that lived at the same time, and that one to
// the next. If this job is of such a chain, the scanner is asked.
func (m *jobWindow) nothingHappened() bool {
	if m.scanner == nil || !m.jail.s.config.only() {
		return false
	}
	nothing, held := m.scanner.quiet.unchangedSince(m.pass)
	return nothing && m.chain.After(held)
}

// onlyInstance says whether no other supervisor lives on this machine, whose jobs could pass descriptors to ours: a directory
// counts those in it as links. One that was killed and not cleared yet counts, and on a file system that does not count,
// it is not known.
func onlyInstance() bool {
	const itself = 2
	var st unix.Stat_t
	return unix.Stat(instancesDir, &st) == nil && st.Nlink == itself+1
}

// overlaps says whether jobs in jails of the two keys may have a file in common: one directory may be in the other, under
// another name too.
func (k *jailKey) overlaps(l *jailKey) bool {
	return k.dev == l.dev || k.common.path != "" || l.common.path != ""
}
