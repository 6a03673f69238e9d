package audit

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
)

// A headState is the content of the head: the end of the audit log, and the space promised to its writers.
type headState struct {
	Position
	Open     int64 // number of jobs that are decided and not closed
	Reserved int64 // the file's blocks are allocated up to this size
}

// The head is one line of a fixed length, so that a single small write replaces it.
const (
	headDigits = 20
	// headSize is the length of the head in bytes.
	headSize = 5*(headDigits+1) + 2*len(Hash{}) + 1
)

// Encode returns the content of the head.
func (s *headState) Encode() []byte {
	b := make([]byte, 0, headSize)
	var room [headDigits]byte
	for _, n := range [...]uint64{s.Seq, s.File, uint64(s.Size), uint64(s.Open), uint64(s.Reserved)} {
		digits := strconv.AppendUint(room[:0], n, 10)
		for range headDigits - len(digits) {
			b = append(b, '0')
		}
		b = append(append(b, digits...), ' ')
	}
	return append(hex.AppendEncode(b, s.Hash[:]), '\n')
}

var errNoHead = errors.New("audit: the head is invalid")

// parseHead accepts exactly the texts that Encode returns.
func parseHead(b []byte) (headState, error) {
	var s headState
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
	s.Seq, s.File, s.Size, s.Open, s.Reserved = numbers[0], numbers[1], int64(numbers[2]), int64(numbers[3]), int64(numbers[4])
	if n, err := hex.Decode(s.Hash[:], []byte(fields[5])); err != nil || n != len(s.Hash) || s.File == 0 || s.File > s.Seq+1 {
		return s, errNoHead
	}
	if !bytes.Equal(s.Encode(), b) {
		return s, errNoHead
	}
	return s, nil
}
