package audit

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A state is the content of the head: the end of the audit log, and the space promised to its writers.
type state struct {
	position
	open     int64 // number of jobs that are decided and not closed
	reserved int64 // the file's blocks are allocated up to this size
}

// The head is one line of a fixed length, so that a single small write replaces it.
const (
	headFile   = "head"
	headDigits = 20
	headSize   = 5*(headDigits+1) + 2*len(hash{}) + 1
)

func (s *state) encode() []byte {
	b := make([]byte, 0, headSize)
	var room [headDigits]byte
	for _, n := range [...]uint64{s.seq, s.file, uint64(s.size), uint64(s.open), uint64(s.reserved)} {
		digits := strconv.AppendUint(room[:0], n, 10)
		for range headDigits - len(digits) {
			b = append(b, '0')
		}
		b = append(append(b, digits...), ' ')
	}
	return append(appendHash(b, s.hash), '\n')
}

var errNoHead = errors.New("audit: the head is invalid")

func parseHead(b []byte) (state, error) {
	var s state
	fields := strings.Fields(string(b))
	if len(b) != headSize || len(fields) != 6 {
		return s, errNoHead
	}
	var numbers [5]uint64
	for i := range numbers {
		n, err := strconv.ParseUint(fields[i], 10, 63)
		if err != nil {
			return s, errNoHead
		}
		numbers[i] = n
	}
	s.seq, s.file, s.size, s.open, s.reserved = numbers[0], numbers[1], int64(numbers[2]), int64(numbers[3]), int64(numbers[4])
	if n, err := hex.Decode(s.hash[:], []byte(fields[5])); err != nil || n != len(s.hash) || s.file == 0 || s.file > s.seq+1 {
		return s, errNoHead
	}
	if !bytes.Equal(s.encode(), b) {
		return s, errNoHead
	}
	return s, nil
}

// readHead reads the head. Usually that is what this Log wrote last, and need not be parsed.
func (l *Log) readHead() (state, error) {
	b, err := bytesOf(l.head)
	if err != nil {
		return state{}, err
	}
	if l.lastHead != nil && bytes.Equal(b, l.lastHead) {
		return l.lastState, nil
	}
	return parseHead(b)
}

func headOf(f *os.File) (state, error) {
	b, err := bytesOf(f)
	if err != nil {
		return state{}, err
	}
	return parseHead(b)
}

// bytesOf reads a head, or one byte more if the file is longer. It issues one pread(2): os.File.ReadAt would issue a
// second one to see EOF.
func bytesOf(f *os.File) ([]byte, error) {
	b := make([]byte, headSize+1)
	for {
		n, err := unix.Pread(int(f.Fd()), b, 0)
		switch {
		case err == nil:
			return b[:n], nil
		case !errors.Is(err, unix.EINTR):
			return nil, fmt.Errorf("audit: %w", &os.PathError{Op: "read", Path: f.Name(), Err: err})
		}
	}
}

// writeHead writes the head. Its failure is only logged: the next writer brings a head that is behind up to date.
func (l *Log) writeHead() {
	l.lastHead, l.lastState = l.at.encode(), l.at
	if _, err := l.head.WriteAt(l.lastHead, 0); err != nil {
		l.o.Log.Warn("audit: cannot write the head", "error", err)
	}
}

// fileName returns the name of the file whose first record has that seq.
func fileName(first uint64) string { return fmt.Sprintf("%012d.jsonl", first) }

// fileSeq is the inverse of fileName.
func fileSeq(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, ".jsonl")
	n, err := strconv.ParseUint(digits, 10, 63)
	return n, ok && err == nil && n > 0 && fileName(n) == name
}

// list returns the files of an audit log in order.
func list(dir *os.Root) ([]uint64, error) {
	d, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []uint64
	for _, name := range names {
		if first, ok := fileSeq(name); ok {
			all = append(all, first)
		}
	}
	slices.Sort(all)
	return all, nil
}
