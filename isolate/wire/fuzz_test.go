package wire

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzMessage: no message makes a decoder panic or allocate more than a small multiple of its size, and an accepted
// message has exactly one encoding.
func FuzzMessage(f *testing.F) {
	for _, c := range codecs {
		f.Add(c.full)
		f.Add(c.full[:len(c.full)/2])
	}
	f.Add(Empty(OpHello, 1))
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

// FuzzPayload: an accepted payload has exactly one encoding.
func FuzzPayload(f *testing.F) {
	f.Add(payload(1, 0, 0, "true\x00"))
	f.Add(payload(2, 1, 0, "sh\x00\x00A=b\x00"))
	f.Add(payload(1<<31, 1<<31, 1<<31, "\x00"))
	f.Add(payload(1, 0, 0, "true"))
	f.Add(payload(1, 0, 2, "sh\x00/a/b\x00\x02\x00\x00\x00\x00x\x00/\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, content []byte) {
		args, env, files, err := ReadPayload(content)
		if err != nil {
			return
		}
		again := payload(uint32(len(args)), uint32(len(env)), uint32(len(files)), "")
		for _, s := range append(args[:len(args):len(args)], env...) {
			again = append(append(again, s...), 0)
		}
		for _, file := range files {
			again = append(append(again, file.Path...), 0)
			again = binary.LittleEndian.AppendUint32(again, uint32(len(file.Content)))
			again = append(append(again, file.Content...), 0)
		}
		if !bytes.Equal(again, content) {
			t.Errorf("%q, %q and %q from %x", args, env, files, content)
		}
	})
}

// payload returns a payload with arbitrary counts, which NewPayload would not write.
func payload(argc, envc, files uint32, rest string) []byte {
	e := encoder{}
	for _, n := range []uint32{payloadMagic, argc, envc, files} {
		e.u32(n)
	}
	return append(e.b, rest...)
}
