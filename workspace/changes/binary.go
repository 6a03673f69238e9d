package changes

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"io"
)

// base85 is git's base-85 alphabet: base85.c.
const base85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

// lineBytes is the maximum number of bytes encoded in one line of a binary patch.
const lineBytes = 52

// literal writes a content in git's format of patches of binary files: emit_binary_diff_body in diff.c. The old
// content is identified by the hash in the header.
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

// encode85 appends p to dst, each four bytes as five characters, the last group padded with zeros.
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
