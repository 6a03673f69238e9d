package audit

import (
	"bytes"
	"errors"
	"fmt"
)

// A headState is the content of the head: the end of the audit log, and the space promised to its writers.
type headState struct {
	Position
	Open     int64 // number of jobs that are decided and not closed
	Reserved int64 // the file's blocks are allocated up to this size
}

// The head is one line of a fixed length, so that a single small write replaces it.
const (
	headForm = "%020d %020d %020d %020d %020d %x\n"
	// headSize is the length of the head in bytes.
	headSize = 5*(20+1) + 2*len(Hash{}) + 1
)

// Encode returns the content of the head.
func (s *headState) Encode() []byte {
	return fmt.Appendf(nil, headForm, s.Seq, s.File, s.Size, s.Open, s.Reserved, s.Hash[:])
}

var errNoHead = errors.New("audit: the head is invalid")

// parseHead accepts exactly the texts that Encode returns.
func parseHead(b []byte) (headState, error) {
	var s headState
	var hash []byte
	_, err := fmt.Sscanf(string(b), "%d %d %d %d %d %x\n", &s.Seq, &s.File, &s.Size, &s.Open, &s.Reserved, &hash)
	copy(s.Hash[:], hash)
	if err != nil || s.File == 0 || s.File-1 > s.Seq || min(s.Size, s.Open, s.Reserved) < 0 || !bytes.Equal(s.Encode(), b) {
		return headState{}, errNoHead
	}
	return s, nil
}
