package artifact

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"corral/internal/lazyregexp"
)

// maxHandle is the maximum length of a handle in bytes; random is the number of random bytes, which make it
// unguessable.
const (
	maxHandle   = 256
	randomBytes = 8
)

// handlePrefix returns the beginning of all handles of a repository's artifacts.
func handlePrefix(repo string) string {
	return "runtime-" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-':
			return r
		}
		return '_'
	}, repo) + "-"
}

// newHandle returns a new handle for an artifact of a repository whose job begins now. ok is false if the repository's id is
// too long for one.
func newHandle(repo string, now time.Time) (handle string, ok bool) {
	var b [randomBytes]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	handle = handlePrefix(repo) + strconv.FormatInt(now.UnixMilli(), 10) + "-" + hex.EncodeToString(b[:])
	return handle, len(handle) <= maxHandle
}

// handleForm matches a handle; its group is the time of creation in milliseconds.
var handleForm = lazyregexp.New(`^runtime-[A-Za-z0-9_-]*-([0-9]{1,18})-[0-9a-f]{16}$`)

// parseHandle returns when the job of a handle began; ok is false if it is not a handle.
func parseHandle(handle string) (at time.Time, ok bool) {
	if len(handle) > maxHandle {
		return at, false
	}
	m := handleForm().FindStringSubmatch(handle)
	if m == nil {
		return at, false
	}
	ms, err := strconv.ParseInt(m[1], 10, 64)
	return time.UnixMilli(ms), err == nil
}

// markID is the id of a gzip header subfield (RFC 1952) with a hash of the artifact's principal. The manifest has
// the principal, too, but if it is damaged, the owner must get an error and everybody else ErrNotFound.
const markID = "Co"

// ownerMark returns the subfield for a principal's artifact. It differs for each artifact of a principal.
func ownerMark(handle, principal string) []byte {
	sum := sha256.Sum256([]byte(handle + "\x00" + principal))
	return append([]byte{markID[0], markID[1], sha256.Size, 0}, sum[:]...)
}
