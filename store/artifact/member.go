package artifact

import (
	"bufio"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
)

// openMember returns a reader of the single gzip member in r. Bytes after it are an error of Read.
func openMember(r io.Reader) (*member, error) {
	b := bufio.NewReaderSize(r, 32<<10) // an io.ByteReader: gzip reads no byte beyond the member
	gz, err := gzip.NewReader(b)
	if err != nil {
		return nil, err
	}
	gz.Multistream(false)
	return &member{gz: gz, rest: b}, nil
}

// A member is a stored stream being read.
type member struct {
	gz   *gzip.Reader
	rest *bufio.Reader
}

// Mark returns the subfields of the header, or nil.
func (m *member) Mark() []byte { return m.gz.Extra }

// Read returns unpacked bytes.
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

var errTrailing = errors.New("bytes after the end")
