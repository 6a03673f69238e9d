package audit

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A Line is one line of the audit log.
type Line struct {
	File   string // file name, without directory
	Number int    // line number in the file, from 1
	Text   []byte // without newline, valid until the next iteration
	whole  bool
	first  fixedFields
	ok     bool // first was parsed from a record
}

// Record parses the line's JSON.
func (l *Line) Record() (*Record, error) {
	r, err := decodeRecord(l.Text)
	if err != nil || !l.ok {
		return nil, fmt.Errorf("%s:%d: not a record", l.File, l.Number)
	}
	return r, nil
}

// A Reader has the files of an audit log open as they were at one moment. It needs no privileges any more.
type Reader struct {
	opened  []*os.File
	firsts  []uint64
	sizes   []int64
	head    headState
	headErr error
}

// OpenReader opens every file of the audit log in dir. It waits for a writer for at most about 5 s; writers wait
// until it returns, but not while the Reader is used.
func OpenReader(dir string) (*Reader, error) { return openReaderWithin(dir, lockPatience) }

// openReaderWithin is OpenReader with another timeout.
func openReaderWithin(dir string, patience time.Duration) (*Reader, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // closing a directory
	lock, err := root.Open(LockFile)
	if err != nil {
		return nil, fmt.Errorf("no audit log in %s: %w", dir, err)
	}
	defer lock.Close() // also unlocks it
	if err := flockUntil(lock, unix.LOCK_SH, time.Now().Add(patience)); err != nil {
		return nil, err
	}
	return readerOf(root)
}

// OpenReaderUnlocked is OpenReader for a program that may read the files and must not be able to hold up those that write them. A
// record that is being written may be missing.
func OpenReaderUnlocked(dir string) (*Reader, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // closing a directory
	return readerOf(root)
}

// readerOf returns a Reader of the files in a directory.
func readerOf(root *os.Root) (*Reader, error) {
	r := &Reader{}
	if err := r.open(root); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Reader) open(root *os.Root) error {
	all, err := listFiles(root)
	if err != nil {
		return err
	}
	for _, first := range all {
		f, err := root.OpenFile(FileName(first), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if errors.Is(err, os.ErrNotExist) { // removed meanwhile: a rotation removes the oldest
			continue
		}
		if err != nil {
			return err
		}
		r.opened, r.firsts = append(r.opened, f), append(r.firsts, first)
		info, err := f.Stat()
		if err != nil {
			return err
		}
		r.sizes = append(r.sizes, info.Size())
	}
	head, err := root.Open(HeadFile)
	if err != nil {
		r.headErr = err
		return nil
	}
	defer head.Close()
	b, err := readHead(head)
	if err == nil {
		r.head, err = parseHead(b)
	}
	r.headErr = err
	return nil
}

// Close closes the files.
func (r *Reader) Close() {
	for _, f := range r.opened {
		f.Close()
	}
}

// Lines returns the lines of the audit log in order, starting with the file that contains the record with seq from.
// After an error, iteration stops.
func (r *Reader) Lines(from uint64) iter.Seq2[*Line, error] {
	begin, found := slices.BinarySearch(r.firsts, from)
	if !found {
		begin = max(0, begin-1)
	}
	return func(yield func(*Line, error) bool) {
		for i := begin; i < len(r.opened); i++ {
			if !r.linesFrom(i, 0, yield) {
				return
			}
		}
	}
}

// LastLines returns the lines of about the last bytes of the audit log, in order. Their numbers are not set. whole reports whether
// these are all lines. After an error, iteration stops.
func (r *Reader) LastLines(bytes int64) (lines iter.Seq2[*Line, error], whole bool) {
	begin := len(r.opened)
	for begin > 0 && bytes > 0 {
		begin--
		bytes -= r.sizes[begin]
	}
	skip := max(0, -bytes) // of the first file
	return func(yield func(*Line, error) bool) {
		for i := begin; i < len(r.opened); i++ {
			if !r.linesFrom(i, skip, yield) {
				return
			}
			skip = 0
		}
	}, begin == 0 && skip == 0
}

// linesFrom yields the lines of a file after the line at a position; position 0 is before the first one.
func (r *Reader) linesFrom(i int, position int64, yield func(*Line, error) bool) bool {
	in := newLineReader(io.NewSectionReader(r.opened[i], position, r.sizes[i]-position))
	line := Line{File: FileName(r.firsts[i])}
	if position > 0 {
		if _, _, _, err := in.Next(); err != nil {
			return errors.Is(err, io.EOF)
		}
	}
	for {
		var err error
		line.Text, line.whole, _, err = in.Next()
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			yield(nil, fmt.Errorf("%s: %w", line.File, err))
			return false
		}
		line.Number++
		line.first, line.ok = parseLine(line.Text)
		line.ok = line.ok && line.whole
		if !yield(&line, nil) {
			return false
		}
	}
}

// Last returns the seq of the last record according to the head.
func (r *Reader) Last() uint64 { return r.head.Seq }

// Follow returns the lines written to the last file after those of Lines, as they arrive. It polls every pause, and
// stops when the audit log continues in another file.
func (r *Reader) Follow(pause time.Duration) iter.Seq2[*Line, error] {
	return func(yield func(*Line, error) bool) {
		if len(r.opened) == 0 {
			return
		}
		last := len(r.opened) - 1
		at, number := r.sizes[last], 0
		for {
			line := Line{File: FileName(r.firsts[last]), Number: number + 1}
			text, whole, n, err := newLineReader(io.NewSectionReader(r.opened[last], at, MaxLine)).Next()
			if err != nil && !errors.Is(err, io.EOF) {
				yield(nil, err)
				return
			}
			if err != nil || !whole {
				time.Sleep(pause)
				continue
			}
			at, number = at+n, number+1
			line.Text, line.whole = text, true
			line.first, line.ok = parseLine(text)
			if !yield(&line, nil) || line.first.Event == Rotated {
				return
			}
		}
	}
}
