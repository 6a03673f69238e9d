package wire

import (
	"bytes"
	"testing"
)

// FuzzMessage: no message makes a decoder panic or allocate more than a small multiple of its size, and an accepted
// message has exactly one encoding.
func FuzzMessage(f *testing.F) {
	for _, c := range codecs {
		f.Add(c.full)
		f.Add(c.full[:len(c.full)/2])
	}
	f.Add(Encode(Empty(OpHello), 1))
	f.Fuzz(func(t *testing.T, message []byte) {
		head, body, err := ReadHeader(message)
		if err != nil {
			return
		}
		for _, c := range codecs {
			if c.op != head.Op {
				continue
			}
			again, err := c.again(body, head.Tag)
			if err == nil && !bytes.Equal(again, message) {
				t.Errorf("%s\n got %x\nfrom %x", c.name, again, message)
			}
		}
	})
}

// TestDecodersAllocateLittle: a string costs its own length, and a false length field costs nothing.
func TestDecodersAllocateLittle(t *testing.T) {
	claims := bytes.Repeat([]byte{0xff}, MaxMessage-headerSize)
	for _, c := range codecs {
		if n := testing.AllocsPerRun(10, func() { _, _ = c.again(c.full[headerSize:], 0) }); n > 20 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
		if n := testing.AllocsPerRun(10, func() { _, _ = c.again(claims, 0) }); n > 40 {
			t.Errorf("%s, all ones: %v allocations", c.name, n)
		}
	}
}
