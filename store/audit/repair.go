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

// A repair describes damage at the end of the audit log.
type repair struct {
	cut     int64  // bytes after the last record that were cut off
	saved   string // file they were moved to, "" if they were the beginning of a single line
	missing uint64 // records that the head counts and the files lack
}

// begin finds and repairs the end of the audit log, which a crash of another supervisor, or of the machine, may have
// damaged.
func (l *Log) begin() error {
	head, err := l.readHead()
	if err != nil || !l.hasRecordAt(head.position) {
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

// fromCheckpoint returns where to start reading if the head is unusable.
func (l *Log) fromCheckpoint() state {
	c := l.readCheckpoint()
	return state{position: c.position, open: int64(len(c.open))}
}

// beginning returns the position before the first record of a file, according to that record.
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

// hasRecordAt reports whether the record that ends at p has p's hash.
func (l *Log) hasRecordAt(p position) bool {
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

// repair reads the records after from, and makes the position after the last one the end of the audit log. What a
// torn write left there is cut off: the caller holds the lock, so it is not still being written.
func (l *Log) repair(from state) error {
	all, err := list(l.root)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	at := from
	torn, err := l.follow(&at.position, all, true, func(f fixed) { at.open = max(0, at.open+openDelta(f.event)) })
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
	if size < at.size { // somebody truncated it: a checkpoint lies within
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
			// Continue after the hash that was written, so that Verify finds the record that was changed.
			l.changed(at.position)
			at.hash = head.hash
		}
	}
	l.at = at
	// Allocated space may be gone: truncated, lost in a power cut, or in another file.
	l.reallocate()
	if r.cut > 0 || r.missing > 0 {
		l.unrecordedRepair = &r
	}
	l.writeHead()
	return nil
}

// follow moves at to the end of the audit log and calls f for each record on the way. It returns the torn line there,
// if any: with strict, the first line that is not a record, otherwise only a last line without its newline. Flaws
// that no crash can cause are logged and left for Verify to find: the audit log continues after them.
func (l *Log) follow(at *position, all []uint64, strict bool, f func(fixed)) (*flaw, error) {
	logged := false
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
		if !logged {
			l.changed(end)
			logged = true
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

// isEmpty reports whether a file was created for a rotation that did not complete.
func (l *Log) isEmpty(first uint64) bool {
	info, err := l.root.Lstat(fileName(first))
	return err == nil && info.Size() == 0
}

func (l *Log) changed(p position) {
	l.o.Log.Error("audit: the audit log was changed by something other than a supervisor: corral audit verify shows where",
		"file", fileName(p.file), "after", p.seq)
}

// cut removes the last n bytes of the current file. If they are more than the beginning of a single line, they may
// contain records, and are saved beside the audit log first.
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

// writeRepair records a repair, if there was one.
func (l *Log) writeRepair() error {
	r := l.unrecordedRepair
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
	l.unrecordedRepair = nil
	return nil
}

// removeEmpty removes files that were created for a rotation that did not complete.
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
