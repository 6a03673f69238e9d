package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A Record is a parsed line. Fields that its event does not have are zero. Texts were chosen by a front-end or a job:
// quote them before showing them.
type Record struct {
	Seq       uint64            `json:"seq"`
	Prev      string            `json:"prev"`
	Time      time.Time         `json:"time"`
	Event     Event             `json:"event"`
	Instance  string            `json:"instance"`
	Job       string            `json:"job"`
	Of        uint64            `json:"of"`
	Peer      *uint32           `json:"peer"`
	Embedded  bool              `json:"embedded"`
	PID       int               `json:"pid"`
	Repo      string            `json:"repo"`
	Common    string            `json:"common"`
	Dir       string            `json:"dir"`
	Profile   string            `json:"profile"`
	Workspace string            `json:"workspace"`
	Protect   string            `json:"protect"`
	Network   string            `json:"network"`
	Terminal  bool              `json:"terminal"`
	Limits    map[string]int64  `json:"limits"`
	Claimed   map[string]string `json:"claimed"`
	Status    string            `json:"status"`
	Exit      int               `json:"exit"`
	Signal    int               `json:"signal"`
	Limit     string            `json:"limit"`
	Cgroup    string            `json:"cgroup"`
	Sensitive int               `json:"sensitive"`
	Usage     map[string]int64  `json:"usage"`
	Step      string            `json:"step"`
	Errno     int               `json:"errno"`
	Message   string            `json:"message"`
	Count     uint64            `json:"count"`
	Since     *time.Time        `json:"since"`
	Next      string            `json:"next"`
	Kept      uint64            `json:"kept"`
	CutBytes  int64             `json:"cut_bytes"`
	Saved     string            `json:"saved"`
	Missing   uint64            `json:"missing"`
}

// A Line is one line of the audit log.
type Line struct {
	File   string // file name, without directory
	Number int    // line number in the file, from 1
	Text   []byte // without newline, valid until the next iteration
	whole  bool
	first  fixed
	ok     bool // first was parsed from a record
}

// Record parses the line's JSON.
func (l *Line) Record() (*Record, error) {
	var r Record
	if err := json.Unmarshal(l.Text, &r); err != nil || !l.ok {
		return nil, fmt.Errorf("%s:%d: not a record", l.File, l.Number)
	}
	return &r, nil
}

// A Reader has the files of an audit log open as they were at one moment. It needs no privileges any more.
type Reader struct {
	files   []*os.File
	firsts  []uint64
	sizes   []int64
	head    state
	headErr error
}

// OpenReader opens every file of the audit log in dir. It waits for a writer for at most about 5 s; writers wait
// until it returns, but not while the Reader is used.
func OpenReader(dir string) (*Reader, error) { return openReader(dir, lockPatience) }

func openReader(dir string, patience time.Duration) (*Reader, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // closing a directory
	lock, err := root.Open("lock")
	if err != nil {
		return nil, fmt.Errorf("no audit log in %s: %w", dir, err)
	}
	defer lock.Close() // also unlocks it
	if err := flock(lock, unix.LOCK_SH, time.Now().Add(patience)); err != nil {
		return nil, err
	}
	r := &Reader{}
	if err := r.open(root); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Reader) open(root *os.Root) error {
	all, err := list(root)
	if err != nil {
		return err
	}
	for _, first := range all {
		f, err := root.OpenFile(fileName(first), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if errors.Is(err, os.ErrNotExist) { // removed meanwhile: a rotation removes the oldest
			continue
		}
		if err != nil {
			return err
		}
		r.files, r.firsts = append(r.files, f), append(r.firsts, first)
		info, err := f.Stat()
		if err != nil {
			return err
		}
		r.sizes = append(r.sizes, info.Size())
	}
	head, err := root.Open(headFile)
	if err != nil {
		r.headErr = err
		return nil
	}
	defer head.Close()
	r.head, r.headErr = headOf(head)
	return nil
}

// Close closes the files.
func (r *Reader) Close() {
	for _, f := range r.files {
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
		for i := begin; i < len(r.files); i++ {
			if !r.linesOf(i, yield) {
				return
			}
		}
	}
}

func (r *Reader) linesOf(i int, yield func(*Line, error) bool) bool {
	in := newLines(io.NewSectionReader(r.files[i], 0, r.sizes[i]))
	line := Line{File: fileName(r.firsts[i])}
	for {
		var err error
		line.Text, line.whole, _, err = in.next()
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			yield(nil, fmt.Errorf("%s: %w", line.File, err))
			return false
		}
		line.Number++
		line.first, line.ok = parse(line.Text)
		line.ok = line.ok && line.whole
		if !yield(&line, nil) {
			return false
		}
	}
}

// Last returns the seq of the last record according to the head.
func (r *Reader) Last() uint64 { return r.head.seq }

// Follow returns the lines written to the last file after those of Lines, as they arrive. It polls every pause, and
// stops when done is closed or the audit log continues in another file.
func (r *Reader) Follow(done <-chan struct{}, pause time.Duration) iter.Seq2[*Line, error] {
	return func(yield func(*Line, error) bool) {
		if len(r.files) == 0 {
			return
		}
		last := len(r.files) - 1
		at, number := r.sizes[last], 0
		for {
			line := Line{File: fileName(r.firsts[last]), Number: number + 1}
			text, whole, n, err := newLines(io.NewSectionReader(r.files[last], at, maxLine)).next()
			if err != nil && !errors.Is(err, io.EOF) {
				yield(nil, err)
				return
			}
			if err != nil || !whole {
				select {
				case <-done:
					return
				case <-time.After(pause):
				}
				continue
			}
			at, number = at+n, number+1
			line.Text, line.whole = text, true
			line.first, line.ok = parse(text)
			if !yield(&line, nil) || line.first.event == Rotated {
				return
			}
		}
	}
}
