// Package scan finds the sensitive paths of a repository that a job made or changed: git hooks and configuration, and
// files that make agents, editors, shells and package tools run code, or change what they do, on the host later. They are
// found at the root and at any depth below it, by one bounded walk whose result is remembered.
//
// A [Scanner] belongs to one repository. [Scanner.Baseline] walks the tree once and remembers each directory and the
// state of each sensitive path. [Scanner.Changed], called after a job, checks the state of the known directories and
// sensitive paths, reads again only the directories that changed, and reports the differences. [Scanner.Keep], called
// before a job, lists the paths that the job must not change. [Table] lists the rules, and why each path is sensitive.
//
// A git directory is a directory named .git, one below .git/modules or .git/worktrees, or a look-alike: a directory which
// git would take for a bare repository, whatever its name. Names are compared as the most permissive file system would
// compare them (CVE-2014-9390). Times are those of the inode's last change (ctime), which a job cannot set.
//
// The tree is hostile and may change while it is walked. Therefore:
//
//   - each step opens one name below an open directory, by openat2(2) with RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS,
//     RESOLVE_NO_MAGICLINKS and RESOLVE_NO_XDEV: no symbolic link is followed, no mount is entered, nothing outside is read;
//   - directories and git configurations are opened for reading; of all other files only the metadata is read. A sensitive path that is
//     a symbolic link is followed step by step in the same way, as is what a git configuration names, and each directory that is
//     sensitive behind it is examined like those of the tree; what lies outside is not looked up;
//   - anything that cannot be examined within [Bounds], or at all, makes the report [Report.Incomplete]; it is never skipped
//     silently;
//   - sensitive directories are walked before others and shallow ones before deep ones, and a report that must leave paths out
//     keeps some of every row of the table: a flood hides neither the root's hooks nor a change of another kind.
//
// The scanner of [Serve] watches everything it has examined, so that poll(2) alone shows that another pass would find
// nothing (inotify(7), see [Answer.Armed]).
//
// System calls after [New]: openat2, newfstatat, fstat, getdents64, read, close, fgetxattr and readlinkat; Serve also uses
// inotify_add_watch, inotify_rm_watch and poll. The walk holds one descriptor per level, at
// most [MaxDepth] + 2, and two for a symbolic link. The package logs nothing, writes nothing, starts no goroutine and
// never runs git.
//
// For a directory that is sensitive, or contains something sensitive at any depth, a change of permissions or of access
// control lists is reported: users who may write there could replace what is below.
//
// Not detected: git objects, references and logs, ordinary commits, the index, whose flags can have git not show that a
// file was changed, packed references, which can replace objects, sources (a Makefile runs code as well, but only as source
// does), everything below a mount point, and what a sensitive link leads to if it contains the link. A parser of the index
// was tried, and removed: it is hundreds of lines that read what jobs write, for what only makes git status incomplete.
package scan

import (
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// MaxDepth is the maximum number of levels below the repository's root that are walked. Anything deeper makes a report
// Incomplete.
const MaxDepth = 256

// granularity is how far a file's time may be behind the clock: the kernel stamps files with the time of the last tick,
// and the slowest tick is CONFIG_HZ=100.
const granularity = 10 * time.Millisecond

// maxTracked is the maximum number of sensitive files whose state is remembered (about 150 bytes each). Those beyond it
// are still reported by their time, but make the report Incomplete.
const maxTracked = 50_000

var (
	// ErrNoBaseline is returned by [Scanner.Changed] before the first [Scanner.Baseline].
	ErrNoBaseline = errors.New("scan: no baseline to compare with")
	// ErrIncomplete is returned by [Scanner.Usage], with the sums so far, when part of the tree was not examined.
	ErrIncomplete = errors.New("scan: part of the tree was not examined")
)

// Bounds limits one call. A zero or negative field means its default.
type Bounds struct {
	// MaxDirs is the maximum number of directories remembered, default 100,000 (about 250 bytes each). Sensitive
	// directories may use an eighth more, so that ordinary ones cannot crowd them out.
	MaxDirs int
	// MaxEntries is the maximum number of directory entries read by one call, default 1,000,000.
	MaxEntries int
	// MaxReport is the maximum number of paths in one report, default 100.
	MaxReport int
	// Time is the timeout of one call, default 10 s.
	Time time.Duration
}

func (b Bounds) withDefaults() Bounds {
	set := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	set(&b.MaxDirs, 100_000)
	set(&b.MaxEntries, 1_000_000)
	set(&b.MaxReport, 100)
	if b.Time <= 0 {
		b.Time = 10 * time.Second
	}
	return b
}

// Report is the result of one call.
type Report struct {
	// Paths are the sensitive paths that were made, changed, replaced or removed, relative to the repository: some of
	// each row of the table first, and shallow paths of a row before deep ones. They are bytes chosen by the job: escape
	// them before displaying them. For a new directory its files are listed, or the directory if it has none; for a
	// removed one, only the directory. Nil after Baseline.
	Paths []string
	// More is the number of paths beyond Bounds.MaxReport.
	More int
	// Incomplete reports that something was not examined: a bound was reached, a directory could not be opened, or the
	// tree changed during the walk. The next call examines the rest, as far as the bounds allow.
	Incomplete bool
	// Missed is the first path that was not examined, relative to the repository; "" if Incomplete is not set.
	Missed string
	// Unfinished reports that MaxEntries or Time was reached; the next call continues.
	Unfinished bool
	// Dirs is the number of directories examined.
	Dirs int
	// Entries is the number of directory entries read and of files whose state was read.
	Entries int
}

// A Scanner remembers the directories and sensitive paths of one repository. One goroutine uses it. It holds the repository open as long
// as the process lives: a process scans one.
type Scanner struct {
	fd      int // O_PATH descriptor of the root
	bounds  Bounds
	exact   bool  // see timesExact
	tree    *zone // the rules at the root
	root    *node // nil before the first Baseline
	nodes   int   // directories in the tree below root
	tracked int   // sensitive files in it
	last    time.Time
	// pendingSince is the earliest since (nanoseconds) of passes that ended before everything was examined; nonePending if none. The
	// next pass reports from then on.
	pendingSince int64
	buf          []byte              // for getdents64
	partial      bool                // the last pass left something out, because of a bound
	places       []place             // the directories that jobs write to
	own          int                 // which of them fd is
	linked       map[linkedKey]*node // the directories behind sensitive links
	seed         maphash.Seed

	events  *events // nil: nothing is watched
	watched bool    // everything that the last pass examined is watched, see armed
}

// New returns a scanner of the directory repo, which may be opened with O_PATH. It closes repo, also on failure. It fails
// if the kernel has no openat2(2) (before 5.6) or repo is not a readable directory.
func New(repo *os.File, b Bounds) (*Scanner, error) { return newScanner(repo, b, compile(Table)) }

// NewGitDir returns a scanner of the git directory dir, whatever its name. It is otherwise like New.
func NewGitDir(dir *os.File, b Bounds) (*Scanner, error) {
	return newScanner(dir, b, compile(Table).kids[".git"].dir)
}

func newScanner(repo *os.File, b Bounds, rules *zone) (*Scanner, error) {
	defer repo.Close()
	dir := int(repo.Fd())
	fd, err := openAt(dir, ".", unix.O_PATH)
	if err != nil {
		return nil, fmt.Errorf("scan: open %s: %w", repo.Name(), err)
	}
	probe, err := openAt(fd, ".", unix.O_RDONLY)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("scan: open %s for reading: %w", repo.Name(), err)
	}
	exact := timesExact(probe)
	unix.Close(probe)
	path, err := nameOf(fd)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("scan: the path of %s: %w", repo.Name(), err)
	}
	return &Scanner{
		fd: fd, bounds: b.withDefaults(), exact: exact, tree: rules, pendingSince: nonePending, buf: make([]byte, 64<<10),
		seed: maphash.MakeSeed(), places: []place{{fd, path}},
	}, nil
}

// Baseline walks the whole tree and replaces the remembered state. Its report contains no paths. If it is Incomplete
// because of MaxEntries or Time, later calls of Changed continue where it stopped.
func (s *Scanner) Baseline() (Report, error) {
	s.root, s.nodes, s.tracked, s.pendingSince, s.linked = nil, 0, 0, nonePending, map[linkedKey]*node{}
	now := time.Now()
	st, err := fstat(s.fd)
	if err != nil {
		return Report{}, fmt.Errorf("scan: stat of the root: %w", err)
	}
	s.root = &node{zone: s.tree, id: st.id, unread: true, row: noRow}
	w := s.newWalk(now, now)
	w.silent = true
	return w.run()
}

// Changed compares the tree with the remembered state, reports the sensitive paths that differ and whose change is not
// older than since, and remembers the new state. A removed path has no time of its own: its directory's is used. Since is
// the start of the job, so that earlier changes by its user are not attributed to the job; a tick of 10 ms is allowed
// for.
//
// On a file system whose times are no finer than that tick, a path changed within the tick before
// since is reported even if its state is the one remembered.
//
// If an earlier call ran out of MaxEntries or Time, this one reports from that call's since on; if the clock was set back
// since, it reports every difference.
func (s *Scanner) Changed(since time.Time) (Report, error) {
	if s.root == nil {
		return Report{}, ErrNoBaseline
	}
	now := time.Now()
	w := s.newWalk(now, since)
	w.all = setBack(now.Round(0).Sub(s.last.Round(0)), now.Sub(s.last)) // Round(0) strips the monotonic reading
	return w.run()
}

// setBack reports whether the clock was set back between two times, given their difference by wall clock and by monotonic
// clock.
func setBack(wall, mono time.Duration) bool { return wall < mono-granularity }
