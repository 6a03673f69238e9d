package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// begin finds and repairs the end of the audit log, which a crash of another supervisor, or of the machine, may have
// damaged.
func (l *Log) begin() error {
	head, err := l.readHead()
	if err != nil || !l.read.HasRecordAt(head.Position) {
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
func (l *Log) fromCheckpoint() headState {
	c := l.read.ReadCheckpoint()
	return headState{Position: c.Position, Open: int64(len(c.Open))}
}

// repair reads the records after from, and makes the position after the last one the end of the audit log. What a
// torn write left there is cut off: the caller holds the lock, so it is not still being written.
func (l *Log) repair(from headState) error {
	all, err := listFiles(l.root)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	at := from
	torn, err := l.read.Follow(&at.Position, all, true, func(f fixedFields) { at.Open = max(0, at.Open+f.Event.OpenDelta()) })
	if err != nil {
		return err
	}
	if err := l.use(at.File); err != nil {
		return err
	}
	size, err := l.fileSize()
	if err != nil {
		return err
	}
	if size < at.Size { // somebody truncated it: a checkpoint lies within
		return l.repair(l.fromCheckpoint())
	}
	r := repair{Cut: size - at.Size}
	if torn != nil && r.Cut > 0 {
		if r.Saved, err = l.cut(at.Position, r.Cut); err != nil {
			return err
		}
	}
	if head, err := l.readHead(); err == nil {
		switch {
		case head.Seq > at.Seq:
			r.Missing = head.Seq - at.Seq
		case head.Seq == at.Seq && head.Hash != at.Hash:
			// Continue after the hash that was written, so that Verify finds the record that was changed.
			l.read.Changed(at.Position)
			at.Hash = head.Hash
		}
	}
	l.at = at
	// Allocated space may be gone: truncated, lost in a power cut, or in another file.
	l.reallocate()
	if r.Cut > 0 || r.Missing > 0 {
		l.unrecordedRepair = &r
	}
	l.writeHead()
	return nil
}

// cut removes the last n bytes of the current file. If they are more than the beginning of a single line, they may
// contain records, and are saved beside the audit log first.
func (l *Log) cut(at Position, n int64) (saved string, err error) {
	b := make([]byte, min(n, MaxLine))
	if _, err := l.file.ReadAt(b, at.Size); err != nil {
		return "", fmt.Errorf("audit: %w", err)
	}
	if n > MaxLine || bytes.IndexByte(b, '\n') >= 0 {
		saved = fmt.Sprintf("torn-%d-%d", at.Seq+1, n)
		f, err := l.root.OpenFile(saved, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return "", fmt.Errorf("audit: %w", err)
		}
		_, err = io.Copy(f, io.NewSectionReader(l.file, at.Size, n))
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return "", fmt.Errorf("audit: %w", err)
		}
	}
	return saved, l.truncate(at.Size)
}

// writeRepair records a repair, if there was one.
func (l *Log) writeRepair() error {
	r := l.unrecordedRepair
	if r == nil {
		return nil
	}
	body, err := r.body(l.o.Instance)
	if err != nil {
		return err
	}
	if err := l.put(Repaired, body); err != nil {
		return err
	}
	l.unrecordedRepair = nil
	return nil
}

// removeEmpty removes files that were created for a rotation that did not complete.
func (l *Log) removeEmpty() error {
	all, err := listFiles(l.root)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	for _, first := range all {
		if first <= l.at.File || !l.read.IsEmpty(first) {
			continue
		}
		if err := l.root.Remove(FileName(first)); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	return nil
}
