package db

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"corral/store/index/chunk"
)

// maxText is the maximum size in bytes of a chunk's text.
const maxText = chunk.MaxText

// Checksum detects a modified chunk: SQLite has no checksums, and corrupted data may still decompress.
func Checksum(title, text string) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli) // cached by the package
	return crc32.Update(crc32.Checksum([]byte(title), table), table, []byte(text))
}

// An Inflater decompresses the texts of chunks.
type Inflater struct {
	in  bytes.Reader
	out io.ReadCloser
	buf []byte
}

// Text returns the decompressed text.
func (p *Inflater) Text(compressed []byte) (string, error) {
	p.in.Reset(compressed)
	if p.out == nil {
		p.out = flate.NewReader(&p.in)
		p.buf = make([]byte, maxText+1)
	} else if err := p.out.(flate.Resetter).Reset(&p.in, nil); err != nil {
		return "", err
	}
	n, err := io.ReadFull(p.out, p.buf)
	if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) || n > maxText || p.in.Len() > 0 {
		return "", fmt.Errorf("%w: a chunk's text", ErrDamaged)
	}
	return string(p.buf[:n]), nil
}
