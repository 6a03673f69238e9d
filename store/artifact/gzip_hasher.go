package artifact

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"hash/crc32"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// A gzipHasher compresses and hashes one stream.
type gzipHasher struct {
	gz  *gzip.Writer
	sum hash.Hash
	n   int64 // uncompressed bytes
}

// A gzipHasherPool keeps gzipHashers for reuse: each has about a megabyte of tables.
type gzipHasherPool struct{ pool sync.Pool }

// level is gzip -1: the time for higher levels is not worth it for data that is read once or never.
const level = gzip.BestSpeed

// to returns a gzipHasher that writes to w, with the owner's mark, if any, in the header.
func (p *gzipHasherPool) to(w io.Writer, owner []byte) *gzipHasher {
	if c, ok := p.pool.Get().(*gzipHasher); ok {
		c.gz.Reset(w)
		c.sum.Reset()
		c.n = 0
		c.gz.Extra = owner // Reset clears it
		return c
	}
	gz, _ := gzip.NewWriterLevel(w, level) // fails for invalid levels only
	gz.Extra = owner
	return &gzipHasher{gz: gz, sum: sha256.New()}
}

func (c *gzipHasher) Write(p []byte) (int, error) {
	c.sum.Write(p)
	c.n += int64(len(p))
	return c.gz.Write(p)
}

// sealed has the size and hash of a stream for its manifest.
type sealed struct {
	bytes int64
	sha   [sha256.Size]byte
}

// close ends the stream and returns c to the pool.
func (p *gzipHasherPool) close(c *gzipHasher) (sealed, error) {
	err := c.gz.Close()
	s := sealed{bytes: c.n}
	c.sum.Sum(s.sha[:0])
	c.gz.Reset(io.Discard)
	p.pool.Put(c)
	return s, err
}

// maxPlain is the maximum size stored uncompressed: compressed, it would take the same disk block (see blockSize),
// and a gzipHasher.
const maxPlain = 3 << 10

// short appends a complete gzip member with text to dst.
func (p *gzipHasherPool) short(dst *bytes.Buffer, owner, text []byte) (sealed, error) {
	if len(text) <= maxPlain {
		dst.Write(plainMember(owner, text))
		return sealed{int64(len(text)), sha256.Sum256(text)}, nil
	}
	c := p.to(dst, owner)
	_, _ = c.Write(text) // writing to memory cannot fail
	return p.close(c)
}

// plainMember returns a gzip member (RFC 1952) with one uncompressed block (RFC 1951, 3.2.4). text must be shorter
// than 64 KiB.
func plainMember(owner, text []byte) []byte {
	const deflate, extra, fastest, unknownSystem, last = 8, 4, 4, 255, 1
	b := make([]byte, 0, 25+len(owner)+len(text))
	b = append(b, 0x1f, 0x8b, deflate, extra, 0, 0, 0, 0, fastest, unknownSystem)
	b = append(binary.LittleEndian.AppendUint16(b, uint16(len(owner))), owner...)
	b = binary.LittleEndian.AppendUint16(append(b, last), uint16(len(text)))
	b = append(binary.LittleEndian.AppendUint16(b, ^uint16(len(text))), text...)
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(text))
	return binary.LittleEndian.AppendUint32(b, uint32(len(text)))
}

// unpack returns a reader of the single gzip member in r. Bytes after it are an error.
func unpack(r io.Reader) (*member, error) {
	b, ok := r.(*byteReader)
	if !ok {
		b = newByteReader(r)
	}
	gz, err := gzip.NewReader(b)
	if err != nil {
		return nil, err
	}
	gz.Multistream(false)
	return &member{gz: gz, rest: b}, nil
}

type member struct {
	gz   *gzip.Reader
	rest *byteReader
}

func (m *member) Read(p []byte) (int, error) {
	n, err := m.gz.Read(p)
	if err != io.EOF { //nolint:errorlint // gzip returns it unwrapped
		return n, err
	}
	if _, more := m.rest.ReadByte(); more == nil {
		return n, errTrailing
	}
	return n, io.EOF
}
