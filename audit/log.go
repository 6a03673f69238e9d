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

// Options say how a log is kept. All who share one should have the same.
type Options struct {
	Instance string // of the supervisor, [a-z0-9-]{1,32}: it stands in records about the log itself
	// Each makes every record wait for the disk. Otherwise the disk has it within 20 ms.
	Each    bool
	MaxSize int64 // bytes of one file, roughly; 0 is DefaultMaxSize
	Keep    int   // files that are kept beside the one that is written; 0 is all
	// KeepFor is how long each file is kept in any case, from its last record on: a flood of records does not remove those before
	// it. 0 is not at all.
	KeepFor time.Duration
	// UserDaily is how many bytes the records of one user, root excepted, may take in a day, an eighth of them at once; 0 is no
	// bound. A job that would take more is not decided, and a refused or denied request is not written down: see ErrBudget.
	UserDaily int64
	Log       *slog.Logger // nil discards
}

// DefaultMaxSize is at which size, in bytes, a file is full and the next one begun.
const DefaultMaxSize = 64 << 20

// A Log is an open log, to be written. Its methods may be called by several goroutines at once.
type Log struct {
	o      Options
	root   *os.Root
	dir    *os.File // the directory, to be synced
	head   *os.File
	writes *os.File // locked by who writes
	scans  *os.File // locked by who writes the checkpoint or removes files

	patience time.Duration // for the lock of writes
	budgets  budgets

	turn    sync.Mutex      // before mu; of who has the lock of writes, or waits for it
	closed  bool            // guarded by turn
	running map[uint64]bool // guarded by turn: seqs of what was decided here and is not finished
	owed    []pendingRecords          // guarded by turn

	mu      sync.Mutex
	file    *os.File // guarded by mu: where the log ends; each write goes to its end
	fileOf  uint64   // guarded by mu: the name of file
	at      state    // guarded by mu: as it was at our last write
	buffer  []byte   // guarded by mu
	told    []byte   // guarded by mu: what we wrote last to the head
	toldOf  state    // guarded by mu: which it is
	mended  *repair  // guarded by mu: a repair that is not written down yet
	syncer  *syncer
	scanMu  sync.Mutex     // before mu; the lock of scans holds off processes, not goroutines
	tidying sync.WaitGroup // of goroutines of rotate
}

var (
	errClosed = errors.New("audit: the log is closed")
	errLong   = errors.New("audit: a record is too long")
)

// Open opens the log in dir, which it makes if there is none, readable to its owner alone. What a crash has left at the
// end of the log is put right.
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
	// What a killed one wrote last may not be on the disk.
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
	if !info.IsDir() { // a link, for example
		return fmt.Errorf("%s is no directory", dir)
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
		return fmt.Errorf("%s must be a directory of user %d that nobody else can enter\nhint: chown it, and chmod 0700", dir, os.Geteuid())
	}
	for name, f := range map[string]**os.File{headFile: &l.head, "lock": &l.writes, "scan.lock": &l.scans} {
		if *f, err = l.openFile(name, os.O_CREATE); err != nil {
			return err
		}
	}
	return nil
}

// openFile opens a file of the log for reading and writing.
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
		l.root.Close() //nolint:errcheck // a directory
	}
}

// Close writes what is still owed, waits until the disk has every record, and ends the log.
func (l *Log) Close() error {
	until := time.Now().Add(l.patience)
	l.turn.Lock()
	if l.closed {
		l.turn.Unlock()
		return nil
	}
	var err error
	if len(l.owed) > 0 {
		err = l.finalFlush(until)
	}
	l.closed = true
	l.turn.Unlock()
	l.tidying.Wait()
	err = errors.Join(err, l.syncer.end())
	l.closeAll()
	return err
}

// fixedBytes is about what the first fields of a record take, beside those in Who.
const fixedBytes = 160

// charge is append for a record that a user caused. The end of a job is charged, and written whatever there is left.
func (l *Log) charge(event Event, w *Who, of uint64, rest []byte) (uint64, error) {
	if err := l.budgets.take(w, fixedBytes+len(rest), event.closes()); err != nil {
		return 0, err
	}
	return l.append(event, of, rest)
}

// append writes a record and returns its seq, with an error too if it is written and the disk may not have it; 0 is one
// that is not written. rest is the line from its event on; of is the record that it closes, or 0.
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

// write is append as far as the file. last is the last record that was written: there may be some without that one.
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

// putAll writes a line, and what has to be in the log before.
func (l *Log) putAll(event Event, rest []byte) error {
	if err := l.flushPending(); err != nil {
		return err
	}
	if !event.closes() {
		if err := l.writeRepair(); err != nil {
			return err
		}
		// A file that cannot be left is written on: what has room there has.
		if err := l.rotateIfFull(len(rest)); err != nil {
			l.o.Log.Warn("audit: no new file is begun", "error", err)
		}
	}
	return l.put(event, rest)
}

// catchUp takes in what others wrote since we did. The size tells: every record makes its file longer, the last one of a
// file too. The head tells what they gave back.
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

var errGone = errors.New("audit: the file that is written was removed: nothing is run that cannot be logged\nhint: restart the supervisor")

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

// use makes a file the one that is written. One that is not there is made.
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

// put writes one line where the log ends.
func (l *Log) put(event Event, rest []byte) error {
	line := append(appendLine(l.buffer[:0], l.at.position, time.Now(), rest), '\n')
	l.buffer = line
	if len(line) > maxLine || event.closes() && len(line) > closerMax {
		return fmt.Errorf("%w: %d bytes", errLong, len(line))
	}
	open := max(0, l.at.open+opens(event))
	if err := l.reserve(int64(len(line))+open*closerMax, event.closes()); err != nil {
		return err
	}
	if _, err := l.file.Write(line); err != nil {
		// What was written of it must not be the beginning of the next one. If that fails, the next write mends it.
		_ = l.truncate(l.at.size)
		l.regain()
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
