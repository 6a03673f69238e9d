// Package scan tells which sensitive paths of a repository a job made or changed: git hooks and configuration, and the files
// by which agents, editors, shells and package tools run code or change what they do on the host later. They are found at
// the root and at any depth below it, by one bounded walk whose result is remembered.
//
// A [Scanner] belongs to one repository. [Scanner.Baseline] walks the tree once and remembers each directory and the state of
// each sensitive path. [Scanner.Changed], called after a job, asks for the state of the known directories and sensitive paths,
// reads again only the directories that changed, and names the differences. [Scanner.Keep], called before one, names those
// that it is not to change. [Table] says what is sensitive, and why.
//
// Words: a git directory is a directory named .git, one below .git/modules or .git/worktrees, or a look-alike: a directory
// which git would take for a bare repository, whatever its name. Names are compared as the laxest file system would compare
// them (CVE-2014-9390). Times are those of the inode's last change (ctime), which a job cannot set.
//
// The tree is hostile and may change while it is walked. Therefore:
//
//   - each step opens one name below an open directory, by openat2(2) with RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS,
//     RESOLVE_NO_MAGICLINKS and RESOLVE_NO_XDEV: no symbolic link is followed, no mount is entered, nothing outside is read;
//   - directories are opened for reading, and two kinds of git's files of which each commit makes new ones: the index, for entries by
//     which git does not show what changed, and packed references, for those that replace objects. They are read without waiting, in
//     order, up to 256 MiB and within the time of the pass, and what is not well formed counts as a change. Of everything else only
//     the metadata is asked for. A sensitive path that is a symbolic link is reported as itself. So that a change of the script behind it shows, its target is looked up
//     beneath the root with O_PATH;
//   - what cannot be looked at within [Bounds], or at all, is told as [Report.Incomplete], never passed over;
//   - sensitive directories are walked before others and shallow ones before deep ones, and a report that must leave paths out
//     keeps some of every row of the table: a flood hides neither the root's hooks nor a change of another kind.
//
// The scanner of [Serve] watches what it looked at, so that who asks can see by poll(2) alone that another pass would find
// nothing (inotify(7), see [Answer.Armed]).
//
// The system calls after [New]: openat2, newfstatat, fstat, getdents64, close, and fgetxattr, pread64, and readlinkat by [Scanner.Keep]; by Serve also
// inotify_add_watch, inotify_rm_watch, poll and read of inotify's descriptor, and readlinkat; and fcntl for a lease that is given back
// at once, by which the kernel says whether a file that is read is open for writing. The walk holds one descriptor per
// level, at most [MaxDepth] + 2, and as many again for a symbolic link. The package logs nothing, writes nothing, starts no
// goroutine and never runs git.
//
// Of a directory that is sensitive, or has something sensitive below it, a change of permissions or of access control lists is
// reported: whoever may write there could put anything into the place of what is below.
//
// Not seen: git objects, references and logs, ordinary commits, an index whose entries have the times and size of a file that is
// not the one that was added, references that a reftable replaces, sources (a Makefile runs code as well, but only as source
// does), what is below a mount point, and what is below the directory to which a sensitive symbolic link leads.
package scan

import (
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// MaxDepth is the number of levels below the repository's root that are walked. What is deeper makes a report Incomplete.
const MaxDepth = 256

// granularity is how far a file's time may lie behind the clock: the kernel stamps files with the time of the last tick, and
// the slowest tick is CONFIG_HZ=100.
const granularity = 10 * time.Millisecond

// maxTracked bounds the memory spent on the states of sensitive files (about 150 bytes each). Those beyond it are still
// reported by their time, but a report with any is Incomplete.
const maxTracked = 50_000

var (
	// ErrNoBaseline is returned by [Scanner.Changed] before the first [Scanner.Baseline].
	ErrNoBaseline = errors.New("scan: no baseline to compare with")
	// ErrIncomplete is returned by [Scanner.Usage], with the sums so far, when part of the tree was not looked at.
	ErrIncomplete = errors.New("scan: part of the tree was not looked at")
	// ErrClosed is returned by each method after [Scanner.Close].
	ErrClosed = errors.New("scan: closed")
)

// Bounds limits one call. A zero or negative field stands for its default.
type Bounds struct {
	// MaxDirs is the number of directories remembered, default 100,000 (about 250 bytes each). Sensitive directories may use an
	// eighth more, so that ordinary ones cannot crowd them out.
	MaxDirs int
	// MaxEntries is the number of directory entries read by one call, default 1,000,000.
	MaxEntries int
	// MaxReport is the number of paths named by one report, default 100.
	MaxReport int
	// Time is how long one call may take, default 10 s.
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

// Report is what one call found.
type Report struct {
	// Paths are the sensitive paths that were made, changed, replaced or removed, relative to the repository: some of each row
	// of the table first, and the shallow ones of a row before the deep ones. They are bytes chosen by the job: escape them before they
	// are shown. Of a new directory its files are named, or itself if it has
	// none; of a removed one, only itself. Nil after Baseline.
	Paths []string
	// More is the number of paths beyond Bounds.MaxReport.
	More int
	// Incomplete says that something was not looked at: a bound was reached, a directory could not be opened, or the tree
	// changed during the walk. What was left is looked at by the next call, as far as the bounds allow.
	Incomplete bool
	// Dirs is the number of directories looked at.
	Dirs int
	// Entries is the number of directory entries read and of states asked for.
	Entries int
}

// A Scanner remembers the directories and sensitive paths of one repository. Its methods may be called from several
// goroutines; they take turns.
type Scanner struct {
	mu      sync.Mutex // guards all below
	fd      int        // O_PATH descriptor of the root; -1 after Close
	bounds  Bounds
	exact   bool  // see timesExact
	tree    *zone // the rules at the root
	root    *node // nil before the first Baseline
	nodes   int   // directories in the tree below root
	tracked int   // sensitive files in it
	last    time.Time
	// owed is the earliest since (nanoseconds) whose pass ended before all was looked at; noDebt if none. The
	// next pass reports from then on.
	owed   int64
	buf    []byte   // for getdents64
	keeper *Scanner // what Keep remembers; nil before the first
	lists  bool     // it is a keeper: contents are nothing to it
	seed   maphash.Seed

	events  *events // nil: nothing is watched
	watched bool    // all that the last pass looked at was, see armed
}

// New returns a scanner of the directory repo, which may be opened with O_PATH. It takes repo over and closes it, also when it
// fails. It fails if the kernel has no openat2(2) (before 5.6) or repo is not a directory that can be read.
func New(repo *os.File, b Bounds) (*Scanner, error) { return newScanner(repo, b, compile(Table)) }

// NewGitDir returns a scanner of the git directory dir, whatever its name, as New does of a repository.
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
	return &Scanner{
		fd: fd, bounds: b.withDefaults(), exact: exact, tree: rules, owed: noDebt, buf: make([]byte, 64<<10), seed: maphash.MakeSeed(),
	}, nil
}

// Close releases the repository. Closing twice is not an error.
func (s *Scanner) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return nil
	}
	err := unix.Close(s.fd)
	s.fd, s.root, s.keeper = -1, nil, nil
	return err
}

// Baseline walks the whole tree and remembers it, in place of what was remembered before. Its report names no paths. If it is
// Incomplete because of MaxEntries or Time, later calls of Changed go on where it stopped.
func (s *Scanner) Baseline() (Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return Report{}, ErrClosed
	}
	s.root, s.nodes, s.tracked, s.owed, s.keeper = nil, 0, 0, noDebt, nil
	now := time.Now()
	st, err := fstat(s.fd)
	if err != nil {
		return Report{}, fmt.Errorf("scan: stat of the root: %w", err)
	}
	s.root = &node{zone: s.tree, id: st.id, unread: true, row: noRow}
	w := s.newWalk(now, now)
	w.quiet = true
	return w.run()
}

// Changed compares the tree with what is remembered, names the sensitive paths that differ and whose change is not older than
// since, and remembers the new state. A removed path has no time of its own: its directory's counts. Since is when the job
// was started, so that what its user did before is not laid to its charge; a tick of 10 ms is allowed for.
//
// On a file system whose times are no finer than that tick (see [Scanner.Exact]), a path changed within the tick
// before since is named even if its state is the one remembered.
//
// If an earlier call ran out of MaxEntries or Time, this one reports from that call's since on; if the clock was set back
// since, it reports every difference.
func (s *Scanner) Changed(since time.Time) (Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.fd < 0:
		return Report{}, ErrClosed
	case s.root == nil:
		return Report{}, ErrNoBaseline
	}
	now := time.Now()
	w := s.newWalk(now, since)
	w.all = setBack(now.Round(0).Sub(s.last.Round(0)), now.Sub(s.last)) // Round(0) strips the monotonic reading
	return w.run()
}

// setBack says whether the clock was set back: between two moments it went on by wall, the monotonic clock by mono.
func setBack(wall, mono time.Duration) bool { return wall < mono-granularity }

// Exact reports whether the repository's file system gives each change that follows a look at the file a time of its own.
func (s *Scanner) Exact() bool { return s.exact }
