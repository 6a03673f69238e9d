package cell

import (
	"cmp"
	"strings"
	"time"

	"corral/internal/fault"
	"corral/isolate/host"
	"corral/isolate/scan"
)

// A Window is the time from a job's start to the check of sensitive paths after its end.
type Window struct {
	all   *liveWindows
	jail  *jailKey   // of the job's jail, and by its address the jail
	at    time.Time  // start by the clock of file times, less one step
	state *scanState // of the jail's scanner at the start; may be nil
	pass  uint64     // its number of passes at the start

	found  scan.Answer // guarded by liveWindows.mu: what the scanner reported to other requests during this window
	shared bool        // guarded by liveWindows.mu: another job, which may have files in common with this one, ran meanwhile
}

// liveWindows holds the windows of all live jobs.
type liveWindows struct {
	mu   fault.Mutex
	live map[*Window]struct{} // guarded by mu
}

// open records that a job is about to start in the jail with a key, whose address stands for the jail. state is that of
// the jail's scanner, or nil. If only is false, another supervisor runs on this machine.
func (all *liveWindows) open(jail *jailKey, state *scanState, only bool) *Window {
	m := &Window{all: all, jail: jail, state: state, at: host.FileTime().Add(-host.ClockStep), shared: !only}
	if state != nil {
		m.pass = state.pass()
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	for other := range all.live {
		if other.jail.overlaps(jail) {
			m.shared, other.shared = true, true
		}
	}
	if all.live == nil {
		all.live = map[*Window]struct{}{}
	}
	all.live[m] = struct{}{}
	return m
}

// start returns the earliest start of the jobs that live in a jail, or the present if there are none. The scanner reports
// each change once, so a request must cover what any of them changed.
func (all *liveWindows) start(jail *jailKey) time.Time {
	first := host.FileTime().Add(-host.ClockStep)
	all.mu.Lock()
	defer all.mu.Unlock()
	for m := range all.live {
		if m.jail == jail && m.at.Before(first) {
			first = m.at
		}
	}
	return first
}

// share adds an answer to the windows of the jobs that live in a jail, except own, because the scanner will not report the
// same change again.
func (all *liveWindows) share(jail *jailKey, own *Window, a *scan.Answer) {
	if a.Paths == "" && a.More == 0 && !a.Incomplete {
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	for m := range all.live {
		if m != own && m.jail == jail {
			m.found = mergeAnswers(&m.found, a)
		}
	}
}

// otherAnswers returns what share added to this window.
func (m *Window) otherAnswers() scan.Answer {
	all := m.all
	all.mu.Lock()
	defer all.mu.Unlock()
	return m.found
}

// mergeAnswers merges two answers to OpChanged. If the paths do not fit, the two take turns until the room is used
// up.
func mergeAnswers(a, b *scan.Answer) scan.Answer {
	sum := scan.Answer{More: a.More + b.More, Incomplete: a.Incomplete || b.Incomplete, Missed: cmp.Or(a.Missed, b.Missed)}
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
	all := m.all
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.live, m)
}

// nothingHappened reports whether a scan would find no change since the window opened. No process of the job is left.
//
// inotify reports open(2) but not stores through mmap(2). A process that opened a file before the last pass can have
// passed the descriptor, through a socket in the repository, to a job that ran at the same time, and that job to the next.
// Each of them ran together with another, so after each of them a scan is made.
func (m *Window) nothingHappened() bool {
	shared := fault.Get(&m.all.mu, func() bool { return m.shared })
	return !shared && m.state != nil && m.state.unchangedSince(m.pass)
}
