package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// A Problem is a place where the audit log differs from what was written.
type Problem struct {
	File string // "" for the audit log as a whole
	Line int
	Text string
}

// String returns the place and the problem.
func (p Problem) String() string {
	if p.File == "" {
		return p.Text
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
}

// maxProblems is the maximum number of problems in a Report; further ones are only counted.
const maxProblems = 50

// A Report is the result of Verify.
type Report struct {
	Files       int
	Records     uint64
	First, Last uint64 // seqs
	Hash        string // of the last record
	Open        int    // jobs that are decided and not closed: they are running, or their supervisor was killed
	Problems    []Problem
	More        int      // number of further problems
	Notes       []string // irregularities with a harmless cause
}

// OK reports whether the audit log is intact.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

// An Anchor is the hash of a record that was kept elsewhere.
type Anchor struct {
	Seq  uint64
	Hash string // 64 hexadecimal digits in lower case
}

// ParseAnchor parses SEQ:HASH.
func ParseAnchor(s string) (Anchor, error) {
	seq, digits, _ := strings.Cut(s, ":")
	n, err := strconv.ParseUint(seq, 10, 63)
	if _, bad := hex.DecodeString(digits); err != nil || bad != nil || n == 0 || len(digits) != 2*sha256.Size {
		return Anchor{}, fmt.Errorf("%q is not SEQ:HASH with a hash of 64 hexadecimal digits", s)
	}
	return Anchor{n, strings.ToLower(digits)}, nil
}

// Verify reads the whole audit log in bounded memory. It finds records that were changed, dropped, inserted or moved
// and, with anchors, an audit log that was rewritten. An error means that it could not be read.
func (r *Reader) Verify(anchors ...Anchor) (*Report, error) {
	v := verifier{reader: r, anchors: map[uint64]string{}, open: map[uint64]bool{}}
	for _, a := range anchors {
		v.anchors[a.Seq] = a.Hash
	}
	v.report.Files = len(r.opened)
	for i := range r.opened {
		if err := v.file(i); err != nil {
			return nil, err
		}
	}
	v.ends()
	v.report.Last, v.report.Hash, v.report.Open = v.at.Seq, hex.EncodeToString(v.at.Hash[:]), len(v.open)
	return &v.report, nil
}

type verifier struct {
	reader  *Reader
	report  Report
	anchors map[uint64]string // those not reached yet
	open    map[uint64]bool   // decided records, by seq
	begun   bool
	at      Position // the last record
	place   Problem  // place of the last record
	kept    uint64   // the first file kept by a rotation
	event   Event    // of the last record
}

func (v *verifier) problem(p Problem, format string, args ...any) {
	if len(v.report.Problems) == maxProblems {
		v.report.More++
		return
	}
	p.Text = fmt.Sprintf(format, args...)
	v.report.Problems = append(v.report.Problems, p)
}

func (v *verifier) note(p Problem, format string, args ...any) {
	if len(v.report.Notes) < maxProblems {
		p.Text = fmt.Sprintf(format, args...)
		v.report.Notes = append(v.report.Notes, p.String())
	}
}

// file checks one file, and that it is the expected one.
func (v *verifier) file(i int) error {
	first := v.reader.firsts[i]
	if v.reader.sizes[i] == 0 && i == len(v.reader.opened)-1 && v.event != Rotated && v.begun {
		v.note(Problem{File: FileName(first), Line: 1}, "empty: a supervisor was killed before it began this file")
		return nil
	}
	if v.begun && v.event != Rotated {
		v.problem(v.place, "the file ends here without a rotation: the records after it are missing")
	}
	if v.begun && first != v.at.Seq+1 {
		v.problem(Problem{File: FileName(first), Line: 1}, "the previous file ends with record %d", v.at.Seq)
	}
	var failure error
	v.reader.linesFrom(i, 0, func(l *Line, err error) bool {
		if err != nil {
			failure = err
			return false
		}
		v.line(l, i == len(v.reader.opened)-1)
		return true
	})
	return failure
}

func (v *verifier) line(l *Line, lastFile bool) {
	here := Problem{File: l.File, Line: l.Number}
	switch {
	case !l.whole && lastFile && len(l.Text) < MaxLine && v.at.Seq == v.reader.head.Seq:
		v.note(here, "the beginning of a record: a supervisor was killed while it wrote it")
	case !l.ok:
		v.problem(here, "not a record")
	default:
		v.record(l, here)
	}
}

// record checks that a record follows the last one.
func (v *verifier) record(l *Line, here Problem) {
	f := &l.first
	v.report.Records++
	if !v.begun {
		v.begun, v.report.First = true, f.Seq
		v.at.Seq = f.Seq - 1
		if f.Seq > 1 {
			v.at.Hash = f.Prev
		}
		v.place = here
	}
	switch {
	case f.Seq <= v.at.Seq:
		v.problem(here, "record %d after record %d: inserted or moved", f.Seq, v.at.Seq)
		return
	case f.Seq > v.at.Seq+1:
		v.problem(here, "records %d to %d are missing before this one", v.at.Seq+1, f.Seq-1)
	case f.Prev != v.at.Hash && f.Seq == 1:
		v.problem(here, "record 1 was changed: it has the hash of a previous record")
	case f.Prev != v.at.Hash:
		v.problem(v.place, "record %d was changed: record %d has another hash for it", v.at.Seq, f.Seq)
	}
	v.at = v.at.After(f, l.Text)
	v.place, v.event = here, f.Event
	v.hashed(here)
	v.tally(l, here)
}

// hashed compares the hash of the last record with the head and the anchors.
func (v *verifier) hashed(here Problem) {
	head := &v.reader.head
	if v.reader.headErr == nil && v.at.Seq == head.Seq && v.at.Hash != head.Hash {
		v.problem(here, "record %d was changed: the head has another hash", v.at.Seq)
	}
	if want, ok := v.anchors[v.at.Seq]; ok {
		if hex.EncodeToString(v.at.Hash[:]) != want {
			v.problem(here, "record %d does not have the expected hash", v.at.Seq)
		}
		delete(v.anchors, v.at.Seq)
	}
}

func (v *verifier) tally(l *Line, here Problem) {
	f := &l.first
	switch {
	case f.Event == Decided:
		v.open[f.Seq] = true
	case f.Event.Closes():
		if !v.open[f.Of] && f.Of >= v.report.First {
			v.problem(here, "it closes record %d, which is not an open job", f.Of)
		}
		delete(v.open, f.Of)
	case f.Event == Rotated, f.Event == Repaired:
		r, err := l.Record()
		if err != nil {
			v.problem(here, "not a record")
			return
		}
		v.kept = max(v.kept, r.Kept)
		if r.Missing > 0 {
			v.problem(here, "%d records are missing before this one: lost in a power cut, or dropped while no supervisor ran", r.Missing)
		}
		switch {
		case r.Saved != "":
			v.problem(here, "record %d was followed by data that is not a record; all of it, %d bytes, was moved to %q", f.Seq-1, r.CutBytes, r.Saved)
		case r.CutBytes > 0:
			v.note(here, "%d bytes after record %d were not a record and were cut off", r.CutBytes, f.Seq-1)
		}
	}
}

// ends makes the checks that need the end of the audit log.
func (v *verifier) ends() {
	head := &v.reader.head
	switch {
	case v.reader.headErr != nil:
		v.problem(Problem{}, "the head cannot be read, so missing records at the end would not be noticed: %v", v.reader.headErr)
	case v.at.Seq < head.Seq:
		v.problem(Problem{}, "records %d to %d are missing at the end", v.at.Seq+1, head.Seq)
	case v.at.Seq > head.Seq:
		v.note(Problem{}, "the head is %d records behind: a supervisor was killed", v.at.Seq-head.Seq)
	}
	if v.report.First > 1 && v.report.First > v.kept {
		v.problem(Problem{File: FileName(v.report.First), Line: 1}, "records before %d are missing, and no rotation removed them",
			v.report.First)
	}
	for seq := range v.anchors {
		if seq < v.report.First {
			v.note(Problem{}, "the expected record %d is older than the audit log", seq)
			continue
		}
		v.problem(Problem{}, "the expected record %d is missing", seq)
	}
}
