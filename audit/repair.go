package audit

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// A repair is what was not as it should at the end of the log.
type repair struct {
	cut     int64  // bytes that were no record, behind the last one
	saved   string // the file they were moved to, "" if they were the beginning of one line
	missing uint64 // records that the head knew of
}

// begin finds the end of the log, where a crash of another, or of the machine, may have left something.
func (l *Log) begin() error {
	head, err := l.readHead()
	if err != nil || !l.holds(head.position) {
		head = l.fromCheckpoint()
	}
	if err := l.repair(head); err != nil {
		return err
	}
	if err := l.removeEmpty(); err != nil {
		return err
	}
	return l.writeRepair()
}

// fromCheckpoint is where to begin to read when the head does not help.
func (l *Log) fromCheckpoint() state {
	c := l.readCheckpoint()
	return state{position: c.position, open: int64(len(c.open))}
}

// beginning is the position before the first record of a file, as that says itself.
func (l *Log) beginning(first uint64) position {
	p := position{seq: first - 1, file: first}
	f, err := l.openRead(first)
	if err != nil {
		return p
	}
	defer f.Close()
	line, whole, _, err := newLines(f).next()
	if err != nil || !whole {
		return p
	}
	if fixed, ok := parse(line); ok && fixed.seq == first {
		p.hash = fixed.prev
	}
	return p
}

// holds says whether the record that ends at p is the one with p's hash.
func (l *Log) holds(p position) bool {
	f, err := l.openRead(p.file)
	if err != nil {
		return p.size == 0 && p.seq == 0 && errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	if p.size == 0 {
		return true
	}
	b := make([]byte, min(p.size, maxLine))
	if _, err := f.ReadAt(b, p.size-int64(len(b))); err != nil || b[len(b)-1] != '\n' {
		return false
	}
	b = b[:len(b)-1]
	return sha256.Sum256(b[bytes.LastIndexByte(b, '\n')+1:]) == p.hash
}

// repair reads what is behind from and makes its end the log's. What a torn write left there is cut off. The caller holds
// the lock, so nobody is writing it still.
func (l *Log) repair(from state) error {
	all, err := list(l.root)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	at := from
	torn, err := l.follow(&at.position, all, true, func(f fixed) { at.open = max(0, at.open+opens(f.event)) })
	if err != nil {
		return err
	}
	if err := l.use(at.file); err != nil {
		return err
	}
	size, err := l.fileSize()
	if err != nil {
		return err
	}
	if size < at.size { // somebody cut it: a checkpoint lies within
		return l.repair(l.fromCheckpoint())
	}
	r := repair{cut: size - at.size}
	if torn != nil && r.cut > 0 {
		if r.saved, err = l.cut(at.position, r.cut); err != nil {
			return err
		}
	}
	if head, err := l.readHead(); err == nil {
		switch {
		case head.seq > at.seq:
			r.missing = head.seq - at.seq
		case head.seq == at.seq && head.hash != at.hash:
			// Verify shall find the record that was changed: the log goes on from the one that was written.
			l.changed(at.position)
			at.hash = head.hash
		}
	}
	l.at = at
	// What was allocated is gone with what was cut, or with a power cut; or it was in another file.
	l.regain()
	if r.cut > 0 || r.missing > 0 {
		l.mended = &r
	}
	l.writeHead()
	return nil
}

// follow moves at to the end of the log and calls f with each record on the way. It returns what is torn there: with
// strict the first line that is no record, else a last one without its newline. Flaws that no crash leaves are logged,
// for Verify to find: the log goes on behind them.
func (l *Log) follow(at *position, all []uint64, strict bool, f func(fixed)) (*flaw, error) {
	said := false
	for {
		end, flawed, err := walk(l.openRead, *at, f)
		if err != nil {
			return nil, err
		}
		later := all
		for len(later) > 0 && (later[0] <= end.file || l.isEmpty(later[0])) {
			later = later[1:]
		}
		*at = end
		if len(later) == 0 && (flawed == nil || flawed.torn && (strict || flawed.last)) {
			return flawed, nil
		}
		if !said {
			l.changed(end)
			said = true
		}
		switch {
		case flawed == nil:
			*at = l.beginning(later[0])
			continue
		case !flawed.torn:
			f(flawed.first)
		}
		if *at = flawed.after; at.file < end.file {
			*at = position{end.seq, end.hash, end.file, flawed.behind}
		}
	}
}

// isEmpty says whether a file is one that was made for a rotation that did not come about.
func (l *Log) isEmpty(first uint64) bool {
	info, err := l.root.Lstat(fileName(first))
	return err == nil && info.Size() == 0
}

func (l *Log) changed(p position) {
	l.o.Log.Error("audit: the log was changed by another than the supervisors: corral audit verify says where",
		"file", fileName(p.file), "after", p.seq)
}

// cut takes away the last n bytes of the file that is written. The beginning of one line was never a record; what may
// have been more is kept beside the log.
func (l *Log) cut(at position, n int64) (saved string, err error) {
	b := make([]byte, min(n, maxLine))
	if _, err := l.file.ReadAt(b, at.size); err != nil {
		return "", fmt.Errorf("audit: %w", err)
	}
	if n > maxLine || bytes.IndexByte(b, '\n') >= 0 {
		saved = fmt.Sprintf("torn-%d-%d", at.seq+1, n)
		f, err := l.root.OpenFile(saved, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return "", fmt.Errorf("audit: %w", err)
		}
		_, err = io.Copy(f, io.NewSectionReader(l.file, at.size, n))
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return "", fmt.Errorf("audit: %w", err)
		}
	}
	return saved, l.truncate(at.size)
}

// writeRepair writes down a repair that was made.
func (l *Log) writeRepair() error {
	r := l.mended
	if r == nil {
		return nil
	}
	e, err := Who{Instance: l.o.Instance}.begin(Repaired, 0)
	if err != nil {
		return err
	}
	e.number("cut_bytes", r.cut)
	e.text("saved", r.saved, maxStep)
	e.number("missing", int64(r.missing))
	if err := l.put(Repaired, e.b); err != nil {
		return err
	}
	l.mended = nil
	return nil
}

// removeEmpty removes files that were made for a rotation that did not come about.
func (l *Log) removeEmpty() error {
	all, err := list(l.root)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	for _, first := range all {
		if first <= l.at.file || !l.isEmpty(first) {
			continue
		}
		if err := l.root.Remove(fileName(first)); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	return nil
}
