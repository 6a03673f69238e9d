// Package stream is the format in which corral-layer reports the changes in the layer of a session to a front-end: a
// sequence of records on its standard output. Names are arbitrary bytes.
//
// A stream begins with a version and ends with a [Sum]; without the latter it was cut off. Between them are entries,
// each followed by its contents if these were requested, and conflicts. The reader decodes strictly and within
// bounds: output of a jail may be malformed or false.
package stream

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"corral/job"
)

// Bounds of the fields of a stream. A stream beyond them is malformed.
const (
	MaxPath   = 64 << 10 // bytes of a path, and of a link's target
	MaxChunk  = 64 << 10 // bytes of content in one record
	maxRecord = 3*MaxPath + 256
)

// version is the content of the first record. Version 2 added the digest, version 3 what is newer in the repository, version
// 4 what could not be examined.
const version = 4

// Kinds of records. A record is its kind as one byte, the length of its body as four bytes, little-endian, and the
// body.
const (
	recVersion  = 'v'
	recEntry    = 'e'
	recContent  = 'c' // the side to which the following data belong
	recData     = 'd'
	recConflict = 'x'
	recNewer    = 'n'
	recSum      = 's'
)

// An Entry is a path that differs.
type Entry struct {
	Path    string // relative to the repository
	Kind    job.ChangeKind
	Type    job.FileType // in the layer; for a deletion, in the repository
	OldType job.FileType // in the repository; "" if missing there
	Mode    uint32       // permissions in the layer
	OldMode uint32
	Size    int64 // bytes in the layer
	OldSize int64 // bytes in the repository, including the contents of a deleted directory
	Below   int64 // number of paths below a deleted directory
	Link    string
	OldLink string
	// Sensitive is set if the path, or one of those Below, is a sensitive path: it can make tools on the host run code.
	Sensitive bool
	// State tells whether the entry was applied.
	State State
}

// A State tells whether an entry was applied.
type State uint8

// States of an entry: only listed, applied, would be applied, or cannot be applied.
const (
	Listed State = iota
	Applied
	Planned // would be applied
	Skipped // a FIFO, a socket or a device, which are never applied
	stateEnd
)

// A Content begins one side of an entry. Its bytes follow as data records, until the next record of another kind.
type Content struct {
	New  bool // the layer's side, else the repository's
	Left Left // the reason if the bytes are omitted, else Here
}

// Left is the reason why a content is not in the stream.
type Left uint8

// Values of Left.
const (
	Here       Left = iota // not omitted
	TooLarge               // above the bound of one file
	TooMuch                // above the bound of all files
	Unreadable             // its permissions deny access even to its owner
	OfGit                  // below a git directory, for which git refuses patches
	leftEnd
)

// A Conflict is a path that cannot be applied, with the reason.
type Conflict struct {
	Path   string
	Reason Reason
}

// A Newer is a path of the repository that changed since the session took the repository's state: when it was opened, or at its
// last apply, revert or refresh.
type Newer struct {
	Path    string
	Dir     bool // something was removed from it, or it is a git directory and something in it changed
	Touched bool // the session has changed it, too
}

// A Reason is the reason of a conflict.
type Reason uint8

// Reasons of conflicts.
const (
	Changed    Reason = iota + 1 // changed in the repository since the session took its state
	Gone                         // copied from the repository, where it no longer exists
	NoAccess                     // cannot be read
	Unwritable                   // its directory is not writable
	Unknown                      // has overlay attributes that corral does not set
	Moving                       // is being written to during the apply
	reasonEnd
)

// String returns a phrase to follow the path in a message.
func (r Reason) String() string {
	switch r {
	case Changed:
		return "changed in the repository, too, since the session took its state"
	case Gone:
		return "was in the repository when the session changed it, and no longer exists there"
	case NoAccess:
		return "cannot be read: its permissions deny access to its owner"
	case Unwritable:
		return "its directory in the repository is not writable"
	case Unknown:
		return "has overlay attributes that corral does not set"
	case Moving:
		return "is being written to by a job of the session"
	}
	return "is in conflict"
}

// A Sum ends a stream.
type Sum struct {
	Entries   int64 // including those not in the stream
	Bytes     int64 // total of their sizes: in the layer, or of deleted files
	More      int64 // entries not in the stream
	Conflicts int64 // including those not in the stream
	Applied   int64
	Skipped   int64
	Newer     int64 // paths of the repository that are newer, including those not in the stream
	// Incomplete is set if not everything could be examined.
	Incomplete bool
	Missed     string // the first path that could not be examined, "." for the root; "" if none is known
	// Digest identifies all changes that were examined, in the stream or not, with their contents. It is zero if it
	// was not requested, or not everything could be examined.
	Digest Digest
	// Failed is the reason, with the path, why not everything was done, or "".
	Failed string
}

// DigestSize is the length of a Digest in bytes.
const DigestSize = sha256.Size

// A Digest is the SHA-256 of a set of changes. Two sets with the same digest have the same effect on a repository.
// The zero value stands for no digest.
type Digest [DigestSize]byte

// String returns the digest in hexadecimal, or "" for the zero value.
func (d Digest) String() string {
	if d == (Digest{}) {
		return ""
	}
	return hex.EncodeToString(d[:])
}

// ParseDigest parses the result of String, in lower or upper case. The zero value is an error.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != DigestSize || Digest(b) == d {
		return d, fmt.Errorf("digest %.80q: must be %d hexadecimal digits, as corral changes show prints them", s, 2*DigestSize)
	}
	return Digest(b), nil
}

// errMalformed is wrapped by all errors about malformed streams.
var errMalformed = errors.New("malformed answer of corral-layer")

// checkPath returns an error unless path is a clean path below the repository.
func checkPath(path string) error {
	if path == "" || len(path) > MaxPath || strings.IndexByte(path, 0) >= 0 {
		return fmt.Errorf("%w: a path is empty, too long or has a NUL", errMalformed)
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." || len(part) > 255 {
			return fmt.Errorf("%w: a path is not below the repository", errMalformed)
		}
	}
	return nil
}

// kinds and types are encoded by their index.
var (
	kinds = []job.ChangeKind{job.ChangeAdded, job.ChangeModified, job.ChangeDeleted, job.ChangeReplaced, job.ChangeMode}
	types = []job.FileType{"", job.TypeFile, job.TypeDirectory, job.TypeLink, job.TypeOther}
)
