package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
)

// Options configure an audit log. All processes that share one should use the same options.
type Options struct {
	Instance string // of the supervisor, [a-z0-9-]{1,32}; used in records about the audit log itself
	// Each makes every append wait until the record is on disk. Otherwise it is synced within 20 ms.
	Each    bool
	MaxSize int64 // approximate maximum of one file in bytes; 0 is DefaultMaxSize
	Keep    int   // number of full files that are kept; 0 means all
	// KeepFor is how long each file is kept after its last record, whatever Keep says, so that a flood of records
	// does not remove earlier ones. 0 disables it.
	KeepFor time.Duration
	// UserDaily is the maximum number of bytes per day for records of one user except root, an eighth of them at
	// once; 0 means no bound. A job beyond it is not decided, and a refused or denied request is not recorded: see
	// ErrBudget.
	UserDaily int64
	Log       *slog.Logger // diagnostic log; nil discards
	// Patience is how long an append waits for the lock while another process holds it; 0 is 5 s.
	Patience time.Duration
}

// DefaultMaxSize is the default size in bytes at which the next file is started.
const DefaultMaxSize = 64 << 20

// A Log is an audit log open for writing. Its methods may be called by several goroutines at once.
type Log struct {
	o      Options
	root   *os.Root
	dir    *os.File // the directory, to be synced
	read   logDir   // root, to be read
	head   *os.File
	writes *os.File // locked for writing records
	scans  *os.File // locked for writing the checkpoint and removing files
	group  int      // that may read the records; -1 is none

	patience time.Duration // for the lock of writes
	budgets  budgets

	turn    fault.Mutex     // before mu; held while holding or waiting for the lock of writes
	closed  bool            // guarded by turn
	running map[uint64]bool // guarded by turn: seqs of jobs decided by this Log and not finished
	pending []pendingRecord // guarded by turn: ends of jobs that could not be written

	mu               fault.Mutex
	file             *os.File  // guarded by mu: the current file, opened with O_APPEND
	fileOf           uint64    // guarded by mu: the seq that names file
	at               headState // guarded by mu: the end at our last write
	buffer           []byte    // guarded by mu
	lastHead         []byte    // guarded by mu: the head as we last wrote it
	lastState        headState // guarded by mu: lastHead decoded
	unrecordedRepair *repair   // guarded by mu: a repair without a record so far
	syncer           *syncer
	scanMu           fault.Mutex    // before mu; the lock of scans excludes processes, not goroutines
	tidying          sync.WaitGroup // goroutines started by rotateIfFull
	expiring         atomic.Value   // the string that Expiring returns
}

var errLong = errors.New("audit: a record is too long")

// Open opens the audit log in dir. It creates dir if missing, accessible to its owner only, and repairs what a crash
// left at the end of the audit log.
func Open(dir string, o Options) (*Log, error) {
	if !IsName(o.Instance) {
		return nil, ErrName
	}
	if o.MaxSize == 0 {
		o.MaxSize = DefaultMaxSize
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Log{
		o: o, patience: cmp.Or(o.Patience, lockPatience), running: map[uint64]bool{},
		budgets: budgets{daily: o.UserDaily, now: time.Now},
	}
	if err := l.openAll(dir); err != nil {
		l.closeAll()
		return nil, fmt.Errorf("audit: %w", err)
	}
	if err := l.locked(l.begin); err != nil {
		l.closeAll()
		return nil, err
	}
	if all, err := listFiles(l.root); err == nil {
		l.expire(all)
	}
	l.syncer = newSyncer(o.Each, l.syncFile)
	// The last records of a killed process may not be on disk.
	if err := l.syncer.Wrote(l.at.Seq); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Log) openAll(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() { // a symbolic link, for example
		return fmt.Errorf("%s is not a directory", dir)
	}
	if l.root, err = os.OpenRoot(dir); err != nil {
		return err
	}
	l.read = logDir{Root: l.root, Log: l.o.Log}
	if l.dir, err = l.root.Open("."); err != nil {
		return err
	}
	if info, err = l.dir.Stat(); err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	others := info.Mode().Perm() & 0o077
	if !ok || int(st.Uid) != os.Geteuid() || others != 0 && others != groupReads {
		return fmt.Errorf("%s must belong to user %d and be accessible to nobody else, except to be read by its group\n"+
			"hint: chown it, and chmod 0700, or 0750 for readers in its group", dir, os.Geteuid())
	}
	if l.group = -1; others == groupReads {
		l.group = int(st.Gid)
	}
	if err := l.shareAll(); err != nil {
		return err
	}
	for name, f := range map[string]**os.File{HeadFile: &l.head, LockFile: &l.writes, ScanLockFile: &l.scans} {
		if *f, err = l.openFile(name, os.O_CREATE); err != nil {
			return err
		}
	}
	return nil
}

// groupReads are the permissions of the directory that have its group read the records. All processes that write the log follow them:
// so the supervisor of a single command shares what the service shares.
const groupReads = 0o050

// openFile opens a file of the audit log for reading and writing. The lock files are never shared: a reader could hold writers up.
func (l *Log) openFile(name string, flags int) (*os.File, error) {
	f, err := l.root.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW|flags, 0o600)
	if err != nil || l.group < 0 || name == LockFile || name == ScanLockFile {
		return f, err
	}
	if err := l.share(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// share has the group of the directory read a file.
func (l *Log) share(f *os.File) error { return errors.Join(f.Chown(-1, l.group), f.Chmod(0o640)) }

// shareAll has the group of the directory, if it may read the log, read the files of before.
func (l *Log) shareAll() error {
	if l.group < 0 {
		return nil
	}
	all, err := listFiles(l.root)
	for _, first := range all {
		f, opened := l.root.OpenFile(FileName(first), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if errors.Is(opened, fs.ErrNotExist) { // another supervisor has removed it
			continue
		}
		if opened != nil {
			return opened
		}
		err = errors.Join(err, l.share(f), f.Close())
	}
	return err
}

func (l *Log) closeAll() {
	for _, f := range []*os.File{l.dir, l.head, l.writes, l.scans, l.file} {
		if f != nil {
			f.Close()
		}
	}
	if l.root != nil {
		l.root.Close() //nolint:errcheck // closing a directory
	}
}

// Close writes the pending ends of jobs, waits until every record is on disk, and closes the audit log.
func (l *Log) Close() error {
	first, err := l.endWriting(time.Now().Add(l.patience))
	if !first {
		return nil
	}
	l.tidying.Wait()
	err = errors.Join(err, l.syncer.End())
	l.closeAll()
	return err
}

// endWriting writes the pending ends of jobs, and lets nothing be written any more. first reports that nobody has done so before.
func (l *Log) endWriting(until time.Time) (first bool, err error) {
	l.turn.Lock()
	defer l.turn.Unlock()
	if l.closed {
		return false, nil
	}
	if len(l.pending) > 0 {
		err = l.finalFlush(until)
	}
	l.closed = true
	return true, err
}
