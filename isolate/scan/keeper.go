package scan

import (
	"encoding/binary"
	"errors"
)

// MaxKeptAnswer is the maximum size of an answer to OpKeepHooks and OpKeepAll, in bytes.
const MaxKeptAnswer = keptHeader + MaxKeptBytes

// keptHeader is the size of the status and the number of paths; for each path follow its Hold, the path and NUL.
const keptHeader = 8

// Status values of such an answer.
const (
	keptAll = iota + 1
	keptTooMany
	keptUnknown
)

// A KeptAnswer is a scanner's list of the paths to protect. List is chosen by a job and only the stub parses it: Count
// times a Hold and a path terminated by NUL.
type KeptAnswer struct {
	Count uint32
	List  string
}

// errKeepUnknown is returned if the scanner failed.
var errKeepUnknown = errors.New("scan: the scanner could not read the repository")

// ReadKept decodes an answer to OpKeepHooks or OpKeepAll. Errors include ErrTooMany. The answer comes from a process that
// read data of jobs: its size and counts are validated, List is passed on unchanged.
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

// appendKept encodes the answer for list, or for err.
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
