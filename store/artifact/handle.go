package artifact

import (
	"crypto/rand"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxHandle is the maximum length of a handle in bytes; random is the number of random bytes, which make it
// unguessable.
const (
	maxHandle = 256
	random    = 8
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

func newHandle(repo string, now time.Time) string {
	var b [random]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return handlePrefix(repo) + strconv.FormatInt(now.UnixMilli(), 10) + "-" + hex.EncodeToString(b[:])
}

// handleForm matches a handle; its group is the time of creation in milliseconds.
var handleForm = regexp.MustCompile(`^runtime-[A-Za-z0-9_-]*-([0-9]{1,18})-[0-9a-f]{16}$`)

// parseHandle returns when the job of a handle began; ok is false if it is not a handle.
func parseHandle(handle string) (at time.Time, ok bool) {
	if len(handle) > maxHandle {
		return at, false
	}
	m := handleForm.FindStringSubmatch(handle)
	if m == nil {
		return at, false
	}
	ms, err := strconv.ParseInt(m[1], 10, 64)
	return time.UnixMilli(ms), err == nil
}
