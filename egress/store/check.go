package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
)

// ErrDigest is returned for content that is not what it must be.
var ErrDigest = errors.New("the content has another digest than it must have")

// A Check reads content, and returns its end only after all of it was verified. So whoever copies from it never has all of a content
// that is wrong. It computes the SHA-256 of what it read, too.
type Check struct {
	from   io.Reader
	ours   hash.Hash
	theirs hash.Hash // nil: as ours, or not verified
	want   string
	// Done, if set, is called when the content was verified, before its end is returned.
	Done func() error

	buffers  [2][]byte
	ready    []byte // verified, or not the end
	held     []byte // what may be the end
	finished error
}

// NewCheck returns a Check of content that must have the sum of a hash; "" verifies nothing.
func NewCheck(from io.Reader, h hash.Hash, sum string) *Check {
	return &Check{from: from, ours: sha256.New(), theirs: h, want: sum}
}

// Kept returns a Check of what Get returned.
func Kept(from io.Reader, e Entry) *Check {
	sum, _ := hex.DecodeString(e.SHA256) // it was checked when it was read
	return NewCheck(from, nil, string(sum))
}

// SHA256 returns the digest of all that was read, in hexadecimal.
func (c *Check) SHA256() string { return hex.EncodeToString(c.ours.Sum(nil)) }

// chunk is how much is read at once, and held back, in bytes.
const chunk = 32 << 10

// Read implements io.Reader.
func (c *Check) Read(p []byte) (int, error) {
	for len(c.ready) == 0 {
		if c.finished != nil {
			return 0, c.finished
		}
		c.fill()
	}
	n := copy(p, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// fill reads what follows, and makes what was held back ready, if it is not the end or if it is right.
func (c *Check) fill() {
	if c.buffers[0] == nil {
		c.buffers[0] = make([]byte, chunk)
	}
	next := c.buffers[0] // the other one has what was held back
	n, err := io.ReadAtLeast(c.from, next, 1)
	next = next[:n]
	if n > 0 {
		_, _ = c.ours.Write(next) // hashes return no error
		if c.theirs != nil {
			_, _ = c.theirs.Write(next)
		}
		c.ready, c.held = c.held, next
		c.buffers[0], c.buffers[1] = c.buffers[1], c.buffers[0]
		return
	}
	if errors.Is(err, io.EOF) {
		err = c.verify()
	}
	if err != nil {
		c.finished = err
		return
	}
	c.ready, c.held, c.finished = c.held, nil, io.EOF
}

func (c *Check) verify() error {
	got := c.ours
	if c.theirs != nil {
		got = c.theirs
	}
	if c.want != "" && string(got.Sum(nil)) != c.want {
		return ErrDigest
	}
	if c.Done != nil {
		return c.Done()
	}
	return nil
}
