package artifact

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// A gzipHasher compresses and hashes one stream.
type gzipHasher struct {
	gz  *gzip.Writer
	sha hash.Hash
	n   int64 // uncompressed bytes
}

// A gzipPool keeps compressors for reuse: each has about a megabyte of tables. The zero value is ready for use, by several
// goroutines at once.
type gzipPool struct{ pool sync.Pool }

// level is gzip -1: the time for higher levels is not worth it for data that is read once or never.
const gzipLevel = gzip.BestSpeed

// to returns a gzipHasher that writes to w, with mark, if any, in the header.
func (p *gzipPool) to(w io.Writer, mark []byte) *gzipHasher {
	if c, ok := p.pool.Get().(*gzipHasher); ok {
		c.gz.Reset(w)
		c.sha.Reset()
		c.n = 0
		c.gz.Extra = mark // Reset clears it
		return c
	}
	gz, _ := gzip.NewWriterLevel(w, gzipLevel) // fails for invalid levels only
	gz.Extra = mark
	return &gzipHasher{gz: gz, sha: sha256.New()}
}

func (c *gzipHasher) Write(p []byte) (int, error) {
	c.sha.Write(p)
	c.n += int64(len(p))
	return c.gz.Write(p)
}

// A sum is the size and hash of a stream.
type gzipSum struct {
	bytes int64
	sha   [sha256.Size]byte
}

// close ends the stream and returns c to the pool.
func (p *gzipPool) close(c *gzipHasher) (gzipSum, error) {
	err := c.gz.Close()
	s := gzipSum{bytes: c.n}
	c.sha.Sum(s.sha[:0])
	c.gz.Reset(io.Discard)
	p.pool.Put(c)
	return s, err
}

// short appends a complete gzip member with text to dst.
func (p *gzipPool) short(dst *bytes.Buffer, mark, text []byte) (gzipSum, error) {
	c := p.to(dst, mark)
	_, _ = c.Write(text) // writing to memory cannot fail
	return p.close(c)
}
