package forward

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"corral/store/audit/record"
)

// A position is the last record that the receiver has. The zero value is none.
type position struct {
	seq  uint64
	hash record.Hash
}

// positionSize is the size of the file in bytes: a number of 20 digits, a hash, and what separates them.
const positionSize = 20 + 1 + 2*32 + 1

func (p position) text() string { return fmt.Sprintf("%020d %x\n", p.seq, p.hash) }

// write replaces a position, by one write.
func (p position) write(to io.WriterAt) error {
	_, err := to.WriteAt([]byte(p.text()), 0)
	return err
}

// readPosition reads a position. An empty file is the beginning.
func readPosition(from io.ReaderAt) (position, error) {
	b := make([]byte, positionSize)
	n, err := from.ReadAt(b, 0)
	if n == 0 && errors.Is(err, io.EOF) {
		return position{}, nil
	}
	if n < positionSize {
		return position{}, fmt.Errorf("the position has %d bytes, must have %d: %w", n, positionSize, err)
	}
	var p position
	number, digits, _ := strings.Cut(strings.TrimSuffix(string(b), "\n"), " ")
	_, numberErr := fmt.Sscanf(number, "%d", &p.seq)
	hash, hashErr := hex.DecodeString(digits)
	copy(p.hash[:], hash)
	if err := errors.Join(numberErr, hashErr); err != nil || p.text() != string(b) {
		return position{}, errors.Join(errors.New("the position has another form"), err)
	}
	return p, nil
}
