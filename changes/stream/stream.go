// Package stream is what corral-layer tells a front-end about the changes in the layer of a session: a sequence of records
// on its standard output. Names are bytes, of any value.
//
// A stream begins with a version and ends with a [Sum]; one without it was cut off. Between them are entries, each followed
// by its contents where these were asked for, and conflicts. The one who reads decodes strictly and within bounds: what
// comes from a jail is believed to be neither well formed nor true.
package stream

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"corral/job"
)

// Bounds of what a stream may hold. What is beyond is malformed.
const (
	MaxPath   = 64 << 10 // bytes of a path, and of a link's text
	MaxChunk  = 64 << 10 // bytes of content in one record
	maxRecord = 3*MaxPath + 256
)

// version is the first record's. 2 added the digest.
const version = 2

// Kinds of records: one byte, then the length of what follows as four bytes, little endian, then that.
const (
	recVersion  = 'v'
	recEntry    = 'e'
	recContent  = 'c' // the side that the bytes which follow are of
	recData     = 'd'
	recConflict = 'x'
	recSum      = 's'
)

// An Entry is one path that differs.
type Entry struct {
	Path    string // relative to the repository
	Kind    job.ChangeKind
	Type    job.FileType // in the layer; of a deletion, in the repository
	OldType job.FileType // in the repository; "" if there is nothing
	Mode    uint32       // permissions, of Type
	OldMode uint32
	Size    int64 // bytes, of what is in the layer
	OldSize int64 // bytes, of what is in the repository, with all that is below a directory which goes away
	Below   int64 // paths below such a directory
	Link    string
	OldLink string
	// Sensitive says that the path, or one of those Below, makes tools on the host run code.
	Sensitive bool
	// State is what was done with the entry.
	State State
}

// A State says what became of an entry.
type State uint8

// What became of an entry: nothing was asked for, it was or would be applied, or it cannot be.
const (
	Listed State = iota
	Applied
	Planned // would be applied
	Skipped // a FIFO, a socket or a device, which no repository has
	stateEnd
)

// A Content begins one side of an entry: its bytes follow as data, until the next record of another kind.
type Content struct {
	New  bool // the layer's side, else the repository's
	Left Left // why there are none; 0 if there are
}

// Left says why a content is not in the stream.
type Left uint8

// Reasons for which a content is left out.
const (
	Here       Left = iota // it is in the stream
	TooLarge               // beyond what is shown of one file
	TooMuch                // beyond what is shown of all files
	Unreadable             // its permissions keep even its owner out
	OfGit                  // below a git directory, where no patch reaches
	leftEnd
)

// A Conflict is a path that is not applied, with the reason.
type Conflict struct {
	Path   string
	Reason Reason
}

// A Reason says why something cannot be applied.
type Reason uint8

// Reasons of conflicts.
const (
	Changed    Reason = iota + 1 // changed in the repository since the session was opened
	Gone                         // copied from the repository, where it is no more
	NoAccess                     // cannot be read
	Unwritable                   // its directory cannot be written to
	Unknown                      // has marks of the layer that corral does not make
	Moving                       // is written to while it is applied
	reasonEnd
)

// String says it to a person, after the path.
func (r Reason) String() string {
	switch r {
	case Changed:
		return "changed in the repository since the session was opened"
	case Gone:
		return "was in the repository when the session changed it, and is there no more"
	case NoAccess:
		return "cannot be read: its permissions keep its owner out"
	case Unwritable:
		return "its directory in the repository cannot be written to"
	case Unknown:
		return "the layer has marks on it that corral does not make"
	case Moving:
		return "is being written to by a job of the session"
	}
	return "is in conflict"
}

// A Sum ends a stream.
type Sum struct {
	Entries   int64 // found, whether in the stream or not
	Bytes     int64 // their sizes: in the layer, or of what was deleted
	More      int64 // entries that are not in the stream
	Conflicts int64 // found, whether in the stream or not
	Applied   int64
	Skipped   int64
	// Incomplete says that not everything was looked at.
	Incomplete bool
	// Digest stands for all changes that were looked at, in the stream or not, with their contents; zero if it was not asked for, or
	// not everything could be looked at.
	Digest Digest
	// Failed is why not all was done, with the path, or "".
	Failed string
}

// DigestSize is the length of a Digest in bytes.
const DigestSize = sha256.Size

// A Digest is the SHA-256 of a set of changes. Two sets with one digest make the same of a repository. The zero value is that there
// is none.
type Digest [DigestSize]byte

// String returns it in hexadecimal, or "" of the zero value.
func (d Digest) String() string {
	if d == (Digest{}) {
		return ""
	}
	return hex.EncodeToString(d[:])
}

// ParseDigest reads what String writes, in lower or upper case.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != DigestSize || Digest(b) == d {
		return d, fmt.Errorf("digest %.80q: must be %d hexadecimal digits, as corral changes show prints them", s, 2*DigestSize)
	}
	return Digest(b), nil
}

// errMalformed is wrapped by all errors about a stream that is none.
var errMalformed = errors.New("malformed answer of corral-layer")

// checkPath refuses what is no path below a repository.
func checkPath(path string) error {
	if path == "" || len(path) > MaxPath || strings.IndexByte(path, 0) >= 0 {
		return fmt.Errorf("%w: no path", errMalformed)
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || part == "." || part == ".." || len(part) > 255 {
			return fmt.Errorf("%w: no path below the repository", errMalformed)
		}
	}
	return nil
}

// kinds and types are numbered by their places.
var (
	kinds = []job.ChangeKind{job.ChangeAdded, job.ChangeModified, job.ChangeDeleted, job.ChangeReplaced, job.ChangeMode}
	types = []job.FileType{"", job.TypeFile, job.TypeDirectory, job.TypeLink, job.TypeOther}
)
