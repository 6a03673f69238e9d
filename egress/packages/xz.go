package packages

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

// xzMagic begins a file of xz.
var xzMagic = []byte{0xfd, '7', 'z', 'X', 'Z', 0}

// maxDictionary bounds the memory of a decompressor. xz -9 has 64 MiB.
const maxDictionary = 64 << 20

var errXZ = errors.New("not a file of xz that can be read")

// An xzReader decompresses the blocks of a file of xz. It exists because the library's own reader takes as much memory as a file
// asks for. It checks no sums: what it reads was verified as a whole.
type xzReader struct {
	from  *countedReader
	check int64 // bytes after each block
	block io.Reader
	began int64
	end   bool
}

// A countedReader counts what was read. It is an io.ByteReader, so nobody reads ahead of what is needed.
type countedReader struct {
	*bufio.Reader
	n int64
}

// Read implements io.Reader.
func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// ReadByte implements io.ByteReader.
func (c *countedReader) ReadByte() (byte, error) {
	b, err := c.Reader.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}

// newXZ reads the header of a stream: the magic, a zero byte, the kind of check in another byte, and the CRC-32 of both.
func newXZ(from *bufio.Reader) (*xzReader, error) {
	header := make([]byte, 12)
	if _, err := io.ReadFull(from, header); err != nil || !bytes.HasPrefix(header, xzMagic) || header[6] != 0 {
		return nil, errXZ
	}
	check, known := map[byte]int64{0: 0, 1: 4, 4: 8, 10: 32}[header[7]]
	if !known {
		return nil, errXZ
	}
	return &xzReader{from: &countedReader{Reader: from}, check: check}, nil
}

// Read implements io.Reader.
func (x *xzReader) Read(p []byte) (int, error) {
	for {
		if x.block == nil && !x.end {
			if err := x.next(); err != nil {
				return 0, err
			}
		}
		if x.end {
			return 0, io.EOF
		}
		n, err := x.block.Read(p)
		if errors.Is(err, io.EOF) {
			x.block = nil
			// The block is padded to four bytes.
			_, err = io.CopyN(io.Discard, x.from, -(x.from.n-x.began)&3+x.check)
		}
		if n > 0 || err != nil {
			return n, noEOF(err)
		}
	}
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// next reads the header of a block: its size in words, flags, optional sizes, and one filter, which must be LZMA2.
func (x *xzReader) next() error {
	size, err := x.from.ReadByte()
	if err != nil {
		return noEOF(err)
	}
	if size == 0 { // the index of blocks follows
		x.end = true
		return nil
	}
	header := make([]byte, 4*int(size)+3)
	if _, err := io.ReadFull(x.from, header); err != nil {
		return noEOF(err)
	}
	flags, rest := header[0], header[1:len(header)-4]
	for _, there := range []bool{flags&0x40 != 0, flags&0x80 != 0} {
		if there {
			end := bytes.IndexFunc(rest, func(r rune) bool { return r < 0x80 })
			if end < 0 {
				return errXZ
			}
			rest = rest[end+1:]
		}
	}
	if flags&0x3f != 0 || len(rest) < 3 || rest[0] != 0x21 || rest[1] != 1 {
		return errXZ
	}
	dictionary, err := lzma.DecodeDictCap(rest[2])
	if err != nil || dictionary > maxDictionary {
		return fmt.Errorf("%w: its dictionary has more than %d MiB", errXZ, maxDictionary>>20)
	}
	x.began = x.from.n
	x.block, err = lzma.Reader2Config{DictCap: max(int(dictionary), lzma.MinDictCap)}.NewReader2(x.from)
	return err
}
