package audit

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io/fs"
	"log/slog"
	"os"
)

// A logDir is the directory of an audit log, to be read.
type logDir struct {
	Root *os.Root
	Log  *slog.Logger // diagnostic log
}

// OpenReader opens a file for reading, by the seq of its first record.
func (d logDir) Open(first uint64) (*os.File, error) { return d.Root.Open(FileName(first)) }

// Beginning returns the position before the first record of a file, according to that record.
func (d logDir) Beginning(first uint64) Position {
	p := Position{Seq: first - 1, File: first}
	f, err := d.Open(first)
	if err != nil {
		return p
	}
	defer f.Close()
	line, whole, _, err := newLineReader(f).Next()
	if err != nil || !whole {
		return p
	}
	if fixed, ok := parseLine(line); ok && fixed.Seq == first {
		p.Hash = fixed.Prev
	}
	return p
}

// HasRecordAt reports whether the record that ends at p has p's hash.
func (d logDir) HasRecordAt(p Position) bool {
	f, err := d.Open(p.File)
	if err != nil {
		return p.Size == 0 && p.Seq == 0 && errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	if p.Size == 0 {
		return true
	}
	b := make([]byte, min(p.Size, MaxLine))
	if _, err := f.ReadAt(b, p.Size-int64(len(b))); err != nil || b[len(b)-1] != '\n' {
		return false
	}
	b = b[:len(b)-1]
	return sha256.Sum256(b[bytes.LastIndexByte(b, '\n')+1:]) == p.Hash
}

// Follow moves at to the end of the audit log and calls f for each record on the way. It returns the torn line there,
// if any: with strict, the first line that is not a record, otherwise only a last line without its newline. Flaws
// that no crash can cause are logged and left for Verify to find: the audit log continues after them.
func (d logDir) Follow(at *Position, all []uint64, strict bool, f func(fixedFields)) (*flaw, error) {
	logged := false
	for {
		end, flawed, err := walk(d.Open, *at, f)
		if err != nil {
			return nil, err
		}
		later := all
		for len(later) > 0 && (later[0] <= end.File || d.IsEmpty(later[0])) {
			later = later[1:]
		}
		*at = end
		if len(later) == 0 && (flawed == nil || flawed.Torn && (strict || flawed.Last)) {
			return flawed, nil
		}
		if !logged {
			d.Changed(end)
			logged = true
		}
		switch {
		case flawed == nil:
			*at = d.Beginning(later[0])
			continue
		case !flawed.Torn:
			f(flawed.First)
		}
		if *at = flawed.After; at.File < end.File {
			*at = Position{Seq: end.Seq, Hash: end.Hash, File: end.File, Size: flawed.Behind}
		}
	}
}

// IsEmpty reports whether a file was created for a rotation that did not complete.
func (d logDir) IsEmpty(first uint64) bool {
	info, err := d.Root.Lstat(FileName(first))
	return err == nil && info.Size() == 0
}

// Changed logs that records up to p are not those that were written.
func (d logDir) Changed(p Position) {
	d.Log.Error("audit: the audit log was changed by something other than a supervisor: corral audit verify shows where",
		"file", FileName(p.File), "after", p.Seq)
}

// ReadCheckpoint returns the checkpoint, or the beginning of the audit log if there is no valid one.
func (d logDir) ReadCheckpoint() checkpoint {
	none := checkpoint{Position: Position{File: 1}, Open: map[uint64]Who{}}
	if all, err := listFiles(d.Root); err == nil && len(all) > 0 {
		none.Position = d.Beginning(all[0])
	}
	b, err := d.Root.ReadFile(CheckpointFile)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			d.Log.Warn("audit: cannot read the checkpoint", "error", err)
		}
		return none
	}
	c, ok := parseCheckpoint(b)
	if !ok || !d.HasRecordAt(c.Position) {
		d.Log.Warn("audit: the checkpoint is invalid: reading the whole audit log")
		return none
	}
	return c
}
