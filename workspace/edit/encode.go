package edit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// An encoded Request is a list of texts: for each its length in bytes, little endian, and the text. Nothing follows. corral-layer needs no
// package for JSON that way, which would be a tenth of it.

// absent is the length of a text that is nil.
const absent = math.MaxUint32

// encode encodes texts, which may be nil.
func encode(texts ...*string) string {
	var b []byte
	for _, text := range texts {
		if text == nil {
			b = binary.LittleEndian.AppendUint32(b, absent)
			continue
		}
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(*text))), *text...)
	}
	return string(b)
}

// decode reads as many texts as there are places, of at most limit bytes each, and nothing else.
func decode(from io.Reader, limit uint32, places ...**string) (err error) {
	for _, text := range places {
		if *text, err = decodeText(from, limit); err != nil {
			return err
		}
	}
	switch n, err := io.ReadFull(from, make([]byte, 1)); {
	case n > 0:
		return errors.New("something follows it")
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

func decodeText(from io.Reader, limit uint32) (*string, error) {
	var head [4]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	switch {
	case n == absent:
		return nil, nil
	case n > limit:
		return nil, fmt.Errorf("a text has %d bytes, the maximum is %d", n, limit)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(from, b); err != nil {
		return nil, err
	}
	text := string(b)
	return &text, nil
}
