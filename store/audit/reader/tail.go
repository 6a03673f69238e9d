package reader

import (
	"bytes"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"corral/store/audit/files"
	"corral/store/audit/record"
)

// A File is one file of an audit log, opened for a Tail.
type File struct {
	*os.File
	First uint64 // seq of its first record
	Later uint64 // seq of the first record of the next file that exists; 0 if this is the last one
}

// OpenFile opens the file of an audit log that has the record seq or, if that was removed, the oldest file. A record that is not yet
// written is in the last file. The error is os.ErrNotExist if the audit log has no file.
func OpenFile(dir *os.Root, seq uint64) (File, error) {
	all, err := files.List(dir)
	if err != nil {
		return File{}, err
	}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i] > seq && i > 0 {
			continue
		}
		f, err := dir.OpenFile(files.FileName(all[i]), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			return File{}, err
		}
		opened := File{File: f, First: all[i]}
		if i+1 < len(all) {
			opened.Later = all[i+1]
		}
		return opened, nil
	}
	return File{}, os.ErrNotExist
}

// A Tail reads an audit log from a record on, across files, while supervisors write. It is not safe for concurrent use.
type Tail struct {
	open func(seq uint64) (File, error)
	next uint64 // seq of the record that is expected
	file File
	at   int64 // position in the file
}

// NewTail returns a Tail that begins after the record seq; 0 is the beginning. open does what OpenFile does.
func NewTail(open func(seq uint64) (File, error), seq uint64) *Tail {
	return &Tail{open: open, next: seq + 1}
}

// Close closes the file that is open.
func (t *Tail) Close() {
	if t.file.File != nil {
		t.file.Close()
		t.file = File{}
	}
}

// A Found is what a Tail read: a record, or that some are missing.
type Found struct {
	record.Fixed
	Text []byte // of the record, without newline
	// Missing is the number of records before Seq that are not in the audit log any more. Then there is no Text.
	Missing uint64
}

// Read returns up to count records, fewer once they have size bytes. It returns none if there are none yet: the caller waits and
// tries again.
//
// A line that is no record, which only somebody other than a supervisor can have written, is skipped. Its number, which the next record
// shows, is missing then.
func (t *Tail) Read(count int, size int64) ([]Found, error) {
	var found []Found
	for {
		if t.file.File == nil {
			if err := t.enter(t.next); err != nil {
				return nil, err
			}
		}
		more, err := t.readFile(found, count, size)
		if err != nil || len(more) > len(found) {
			return more, err
		}
		found = more
		if again, err := t.advance(); err != nil || !again {
			return found, err
		}
	}
}

// enter opens the file with a record.
func (t *Tail) enter(seq uint64) error {
	f, err := t.open(seq)
	if err != nil {
		return err
	}
	t.Close()
	t.file, t.at = f, 0
	return nil
}

// advance moves on to the next file if there is one and everything of this one was read.
func (t *Tail) advance() (again bool, err error) {
	before := t.file
	if before.Later == 0 {
		now, err := t.open(t.file.First)
		if err != nil {
			return false, err
		}
		if now.First != before.First { // the file was removed meanwhile, and with it what was not yet read
			t.Close()
			t.file, t.at = now, 0
			return true, nil
		}
		_ = now.Close()
		t.file.Later = now.Later
		return now.Later != 0, nil // what was written before the next file began is read first
	}
	return true, t.enter(before.Later)
}

// readFile appends records of the file from the position on.
func (t *Tail) readFile(found []Found, count int, size int64) ([]Found, error) {
	if info, err := t.file.Stat(); err != nil || info.Size() <= t.at { // common case: avoids allocating a buffer
		return found, err
	}
	lines := record.NewLines(io.NewSectionReader(t.file, t.at, 1<<62))
	for read := int64(0); len(found) < count && read < size; {
		line, whole, n, err := lines.Next()
		if errors.Is(err, io.EOF) || err == nil && !whole && n < record.MaxLine {
			return found, nil // the last line is being written, or a power cut left it
		}
		if err != nil {
			return found, err
		}
		t.at += n
		fixed, ok := record.Parse(line)
		if !whole || !ok || fixed.Seq < t.next {
			continue
		}
		read += n
		if fixed.Seq > t.next {
			missing := Found{Missing: fixed.Seq - t.next}
			missing.Seq = fixed.Seq
			found = append(found, missing)
		}
		found = append(found, Found{Fixed: fixed, Text: bytes.Clone(line)})
		t.next = fixed.Seq + 1
	}
	return found, nil
}
