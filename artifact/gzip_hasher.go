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
	n   int64 // bytes that went in
}

// gzipHasherPool are kept to be used again: one has about a megabyte of tables.
type gzipHasherPool struct{ pool sync.Pool }

// level is gzip -1: of the higher ones none is worth its time for what is read once or never.
const level = gzip.BestSpeed

// to returns a gzipHasher that writes to w: first the owner's mark, if there is one.
func (p *gzipHasherPool) to(w io.Writer, owner []byte) *gzipHasher {
	if c, ok := p.pool.Get().(*gzipHasher); ok {
		c.gz.Reset(w)
		c.sum.Reset()
		c.n = 0
		c.gz.Extra = owner // Reset has removed what was there
		return c
	}
	gz, _ := gzip.NewWriterLevel(w, level) // an error is of a level that there is not
	gz.Extra = owner
	return &gzipHasher{gz: gz, sum: sha256.New()}
}

func (c *gzipHasher) Write(p []byte) (int, error) {
	c.sum.Write(p)
	c.n += int64(len(p))
	return c.gz.Write(p)
}

// sealed is what a manifest says of a stream.
type sealed struct {
	bytes int64
	sha   [sha256.Size]byte
}

// close ends the stream and returns it to the pool.
func (p *gzipHasherPool) close(c *gzipHasher) (sealed, error) {
	err := c.gz.Close()
	s := sealed{bytes: c.n}
	c.sum.Sum(s.sha[:0])
	c.gz.Reset(io.Discard)
	p.pool.Put(c)
	return s, err
}

// plainMost is how much is stored as it is: compressed, it would take the same block of a disk (see blockSize), and a gzipHasher.
const plainMost = 3 << 10

// short makes a member of gzip in one go.
func (p *gzipHasherPool) short(dst *bytes.Buffer, owner, text []byte) (sealed, error) {
	if len(text) <= plainMost {
		dst.Write(plainMember(owner, text))
		return sealed{int64(len(text)), sha256.Sum256(text)}, nil
	}
	c := p.to(dst, owner)
	_, _ = c.Write(text) // to memory
	return p.close(c)
}

// plainMember is a member of gzip (RFC 1952) with one block that is not compressed (RFC 1951, 3.2.4): text has less than 64
// KiB.
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

// unpack returns a reader of the one member of gzip that r has. What comes after it is an error.
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
	if err != io.EOF { //nolint:errorlint // gzip returns it as it is
		return n, err
	}
	if _, more := m.rest.ReadByte(); more == nil {
		return n, errTrailing
	}
	return n, io.EOF
}
