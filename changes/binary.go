package changes

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"io"
)

// base85 is git's alphabet: base85.c.
const base85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

// lineBytes is how much is in one line of a binary patch, at most.
const lineBytes = 52

// literal writes a content as git has it in patches of binary files: emit_binary_diff_body in diff.c. What was there
// before is known by the name in the head.
func literal(w io.Writer, content []byte) error {
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	if _, err := z.Write(content); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	out := fmt.Appendf(nil, "GIT binary patch\nliteral %d\n", len(content))
	for line := packed.Next(lineBytes); len(line) > 0; line = packed.Next(lineBytes) {
		length := byte('A' + len(line) - 1)
		if len(line) > 26 {
			length = byte('a' + len(line) - 27)
		}
		out = append(encode85(append(out, length), line), '\n')
	}
	_, err := w.Write(append(out, '\n'))
	return err
}

// encode85 appends four bytes as five letters each, the last ones filled up with zeros.
func encode85(dst, p []byte) []byte {
	for len(p) > 0 {
		var four [4]byte
		p = p[copy(four[:], p):]
		n := binary.BigEndian.Uint32(four[:])
		var five [5]byte
		for i := len(five) - 1; i >= 0; i-- {
			five[i] = base85[n%85]
			n /= 85
		}
		dst = append(dst, five[:]...)
	}
	return dst
}
