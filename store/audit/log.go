package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
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
}

// DefaultMaxSize is the default size in bytes at which the next file is started.
const DefaultMaxSize = 64 << 20

// A Log is an audit log open for writing. Its methods may be called by several goroutines at once.
type Log struct {
	o      Options
	root   *os.Root
	dir    *os.File // the directory, to be synced
	head   *os.File
	writes *os.File // locked for writing records
	scans  *os.File // locked for writing the checkpoint and removing files

	patience time.Duration // for the lock of writes
	budgets  budgets

	turn    sync.Mutex      // before mu; held while holding or waiting for the lock of writes
	closed  bool            // guarded by turn
	running map[uint64]bool // guarded by turn: seqs of jobs decided by this Log and not finished
	pending []pendingRecord // guarded by turn: ends of jobs that could not be written

	mu               sync.Mutex
	file             *os.File // guarded by mu: the current file, opened with O_APPEND
	fileOf           uint64   // guarded by mu: the seq that names file
	at               state    // guarded by mu: the end at our last write
	buffer           []byte   // guarded by mu
	lastHead         []byte   // guarded by mu: the head as we last wrote it
	lastState        state    // guarded by mu: lastHead decoded
	unrecordedRepair *repair  // guarded by mu: a repair without a record so far
	syncer           *syncer
	scanMu           sync.Mutex     // before mu; the lock of scans excludes processes, not goroutines
	tidying          sync.WaitGroup // goroutines started by rotateIfFull
}

var (
	errClosed = errors.New("audit: the audit log is closed")
	errLong   = errors.New("audit: a record is too long")
)

// Open opens the audit log in dir. It creates dir if missing, accessible to its owner only, and repairs what a crash
// left at the end of the audit log.
func Open(dir string, o Options) (*Log, error) {
	if !isName(o.Instance) {
		return nil, errName
	}
	if o.MaxSize == 0 {
		o.MaxSize = DefaultMaxSize
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Log{o: o, patience: lockPatience, running: map[uint64]bool{}, budgets: budgets{daily: o.UserDaily, now: time.Now}}
	if err := l.openAll(dir); err != nil {
		l.closeAll()
		return nil, fmt.Errorf("audit: %w", err)
	}
	if err := l.locked(l.begin); err != nil {
		l.closeAll()
		return nil, err
	}
	l.syncer = newSyncer(o.Each, l.syncFile)
	// The last records of a killed process may not be on disk.
	if err := l.syncer.wrote(l.at.seq); err != nil {
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
	if l.dir, err = l.root.Open("."); err != nil {
		return err
	}
	if info, err = l.dir.Stat(); err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s must belong to user %d and be accessible to nobody else\nhint: chown it, and chmod 0700", dir, os.Geteuid())
	}
	for name, f := range map[string]**os.File{headFile: &l.head, "lock": &l.writes, "scan.lock": &l.scans} {
		if *f, err = l.openFile(name, os.O_CREATE); err != nil {
			return err
		}
	}
	return nil
}

// openFile opens a file of the audit log for reading and writing.
func (l *Log) openFile(name string, flags int) (*os.File, error) {
	return l.root.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW|flags, 0o600)
}

func (l *Log) openRead(first uint64) (*os.File, error) { return l.root.Open(fileName(first)) }

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
	until := time.Now().Add(l.patience)
	l.turn.Lock()
	if l.closed {
		l.turn.Unlock()
		return nil
	}
	var err error
	if len(l.pending) > 0 {
		err = l.finalFlush(until)
	}
	l.closed = true
	l.turn.Unlock()
	l.tidying.Wait()
	err = errors.Join(err, l.syncer.end())
	l.closeAll()
	return err
}

// fixedBytes is the approximate size of a record's first fields, without those in Who.
const fixedBytes = 160

// charge is append for a record caused by a user. The end of a job is charged, too, but is written even if the share
// is used up.
func (l *Log) charge(event Event, w *Who, of uint64, rest []byte) (uint64, error) {
	if err := l.budgets.spend(w, fixedBytes+len(rest), event.closes()); err != nil {
		return 0, err
	}
	return l.append(event, of, rest)
}

// append writes a record and returns its seq. seq is 0 if the record was not written; with both a seq and an error,
// it was written but may not be on disk. rest is the line from the event on; of is the record that it closes, or 0.
func (l *Log) append(event Event, of uint64, rest []byte) (uint64, error) {
	if err := l.syncer.failure(); err != nil && !event.closes() {
		return 0, err
	}
	seq, last, err := l.write(event, of, rest)
	if last > 0 {
		if synced := l.syncer.wrote(last); err == nil {
			err = synced
		}
	}
	return seq, err
}

// write is append without syncing. last is the last record written, which may be a pending or repair record even if
// this one failed.
func (l *Log) write(event Event, of uint64, rest []byte) (seq, last uint64, err error) {
	until := time.Now().Add(l.patience)
	l.turn.Lock()
	defer l.turn.Unlock()
	err = l.hold(until, func() error {
		if err := l.catchUp(); err != nil {
			return err
		}
		before := l.at.seq
		err := l.putAll(event, rest)
		if err == nil {
			seq = l.at.seq
		}
		if l.at.seq > before {
			last = l.at.seq
		}
		return err
	})
	l.account(event, of, seq, rest, err)
	return seq, last, err
}

// putAll writes a line, and before it all records that must precede it.
func (l *Log) putAll(event Event, rest []byte) error {
	if err := l.flushPending(); err != nil {
		return err
	}
	if !event.closes() {
		if err := l.writeRepair(); err != nil {
			return err
		}
		// If rotating fails, the current file is used on: space promised in it is still there.
		if err := l.rotateIfFull(len(rest)); err != nil {
			l.o.Log.Warn("audit: cannot start the next file", "error", err)
		}
	}
	return l.put(event, rest)
}

// catchUp brings l.at up to date with what other processes wrote. The file's size shows whether they did: every
// record makes it longer, including the last one of a file. The head shows which space they gave back.
func (l *Log) catchUp() error {
	size, err := l.fileSize()
	if err != nil {
		return err
	}
	head, err := l.readHead()
	if size == l.at.size {
		if err == nil && head.file == l.at.file {
			l.at.reserved = min(l.at.reserved, head.reserved)
		}
		return nil
	}
	if err == nil && head.seq > l.at.seq && l.use(head.file) == nil {
		if size, err := l.fileSize(); err == nil && size == head.size {
			l.at = head
			return nil
		}
	}
	return l.repair(l.at)
}

var errGone = errors.New("audit: the current file of the audit log was removed: no job can be recorded or run\nhint: restart the supervisor")

func (l *Log) fileSize() (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(l.file.Fd()), &st); err != nil {
		return 0, fmt.Errorf("audit: %w", err)
	}
	if st.Nlink == 0 {
		return 0, errGone
	}
	return st.Size, nil
}

// use makes a file the current one, and creates it if missing.
func (l *Log) use(first uint64) error {
	if l.fileOf == first {
		return nil
	}
	f, err := l.openFile(fileName(first), os.O_APPEND)
	if errors.Is(err, fs.ErrNotExist) {
		if f, err = l.openFile(fileName(first), os.O_APPEND|os.O_CREATE); err == nil {
			err = l.dir.Sync()
		}
	}
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if l.file != nil {
		l.file.Close()
	}
	l.file, l.fileOf = f, first
	return nil
}

// put appends one line to the audit log.
func (l *Log) put(event Event, rest []byte) error {
	line := append(appendLine(l.buffer[:0], l.at.position, time.Now(), rest), '\n')
	l.buffer = line
	if len(line) > maxLine || event.closes() && len(line) > closerMax {
		return fmt.Errorf("%w: %d bytes", errLong, len(line))
	}
	open := max(0, l.at.open+openDelta(event))
	if err := l.reserve(int64(len(line))+open*closerMax, event.closes()); err != nil {
		return err
	}
	if _, err := l.file.Write(line); err != nil {
		// A partly written line must not become the beginning of the next one. If truncating fails, the next write
		// repairs it.
		_ = l.truncate(l.at.size)
		l.reallocate()
		l.writeHead()
		return noRoom(err, l.file)
	}
	first := fixed{seq: l.at.seq + 1, event: event}
	l.at.position, l.at.open = l.at.after(&first, line[:len(line)-1]), open
	if event != Rotated {
		l.writeHead()
	}
	return nil
}
