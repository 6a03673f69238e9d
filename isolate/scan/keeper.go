package scan

import (
	"encoding/binary"
	"errors"
)

// MaxKeptAnswer is the size of the largest answer to OpKeepHooks and OpKeepAll, in bytes.
const MaxKeptAnswer = keptHeader + MaxKeptBytes

// keptHeader is a status and the number of paths; then each hold, path and NUL.
const keptHeader = 8

// The states of such an answer.
const (
	keptAll = iota + 1
	keptTooMany
	keptUnknown
)

// A KeptAnswer is what a scanner says of the paths to keep. List is bytes that a job chose, for the stub alone: Count times a
// Hold and a path that ends with NUL.
type KeptAnswer struct {
	Count uint32
	List  string
}

// errKeepUnknown is a scanner that could not look.
var errKeepUnknown = errors.New("scan: the scanner could not look at the repository")

// ReadKept decodes such an answer: ErrTooMany is one of its errors. It comes from a process that read what jobs wrote: its
// length is checked, its bytes are kept.
func ReadKept(b []byte) (KeptAnswer, error) {
	if len(b) < keptHeader || len(b) > MaxKeptAnswer {
		return KeptAnswer{}, ErrProtocol
	}
	status, a := binary.LittleEndian.Uint32(b), KeptAnswer{binary.LittleEndian.Uint32(b[4:]), string(b[keptHeader:])}
	switch {
	case status == keptTooMany:
		return KeptAnswer{}, ErrTooMany
	case status == keptUnknown:
		return KeptAnswer{}, errKeepUnknown
	case status != keptAll, a.Count > MaxKept, (a.Count == 0) != (a.List == ""), a.List != "" && a.List[len(a.List)-1] != 0:
		return KeptAnswer{}, ErrProtocol
	}
	return a, nil
}

// appendKept encodes the answer.
func appendKept(list []Kept, err error) []byte {
	status, size := uint32(keptAll), 0
	for _, k := range list {
		size += len(k.Path) + 2
	}
	if err == nil && (len(list) > MaxKept || size > MaxKeptBytes) {
		err = ErrTooMany
	}
	switch {
	case errors.Is(err, ErrTooMany):
		status, list = keptTooMany, nil
	case err != nil:
		status, list = keptUnknown, nil
	}
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, keptHeader), status)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(list)))
	for _, k := range list {
		b = append(append(append(b, byte(k.Hold)), k.Path...), 0)
	}
	return b
}
