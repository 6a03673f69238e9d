package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
)

// fixedBytes is the approximate size of a record's first fields, without those in Who.
const fixedBytes = 160

// charge is record for a record caused by a user, and returns its seq as append does. The end of a job is charged, too, but is
// written even if the share is used up.
func (l *Log) charge(event Event, w Who, of uint64, fields func(*encoder)) (uint64, error) {
	rest, err := w.body(event, of, fields)
	if err != nil {
		return 0, err
	}
	if err := l.budgets.spend(&w, fixedBytes+len(rest), event.Closes()); err != nil {
		return 0, err
	}
	return l.append(event, of, rest)
}

// record writes a record with the given fields after the first ones.
func (l *Log) record(event Event, w Who, of uint64, fields func(*encoder)) error {
	rest, err := w.body(event, of, fields)
	if err == nil {
		_, err = l.append(event, of, rest)
	}
	return err
}

// append writes a record and returns its seq. seq is 0 if the record was not written; with both a seq and an error,
// it was written but may not be on disk. rest is the line from the event on; of is the record that it closes, or 0.
func (l *Log) append(event Event, of uint64, rest []byte) (uint64, error) {
	if err := l.syncer.Failure(); err != nil && !event.Closes() {
		return 0, err
	}
	seq, last, err := l.write(event, of, rest)
	if last > 0 {
		if synced := l.syncer.Wrote(last); err == nil {
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
		before := l.at.Seq
		err := l.putAll(event, rest)
		if err == nil {
			seq = l.at.Seq
		}
		if l.at.Seq > before {
			last = l.at.Seq
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
	if !event.Closes() {
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
	if size == l.at.Size {
		if err == nil && head.File == l.at.File {
			l.at.Reserved = min(l.at.Reserved, head.Reserved)
		}
		return nil
	}
	if err == nil && head.Seq > l.at.Seq && l.use(head.File) == nil {
		if size, err := l.fileSize(); err == nil && size == head.Size {
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
	f, err := l.openFile(FileName(first), os.O_APPEND)
	if errors.Is(err, fs.ErrNotExist) {
		if f, err = l.openFile(FileName(first), os.O_APPEND|os.O_CREATE); err == nil {
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
	line := append(appendLine(l.buffer[:0], l.at.Position, time.Now(), rest), '\n')
	l.buffer = line
	if len(line) > MaxLine || event.Closes() && len(line) > closerMax {
		return fmt.Errorf("%w: %d bytes", errLong, len(line))
	}
	open := max(0, l.at.Open+event.OpenDelta())
	if err := l.reserve(int64(len(line))+open*closerMax, event.Closes()); err != nil {
		return err
	}
	if _, err := l.file.Write(line); err != nil {
		// A partly written line must not become the beginning of the next one. If truncating fails, the next write
		// repairs it.
		_ = l.truncate(l.at.Size)
		l.reallocate()
		l.writeHead()
		return noRoom(err, l.file)
	}
	first := fixedFields{Seq: l.at.Seq + 1, Event: event}
	l.at.Position, l.at.Open = l.at.After(&first, line[:len(line)-1]), open
	if event != Rotated {
		l.writeHead()
	}
	return nil
}

// locked calls f while it holds the locks of this process and of all others.
func (l *Log) locked(f func() error) error {
	until := time.Now().Add(l.patience)
	l.turn.Lock()
	defer l.turn.Unlock()
	return l.hold(until, f)
}

// hold is locked for a caller that holds turn. mu is taken only after the file lock, so that syncing, which needs mu
// alone, is not blocked meanwhile.
func (l *Log) hold(until time.Time, f func() error) error {
	if l.closed {
		return ErrClosed
	}
	if err := flockUntil(l.writes, unix.LOCK_EX, until); err != nil {
		return err
	}
	defer func() { _ = unix.Flock(int(l.writes.Fd()), unix.LOCK_UN) }()
	l.mu.Lock()
	defer l.mu.Unlock()
	return f()
}

// syncFile syncs the current file. Earlier files were synced when the next one was started.
func (l *Log) syncFile() error {
	return dataSync(fault.Get(&l.mu, func() *os.File { return l.file }))
}
