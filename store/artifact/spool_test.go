package artifact

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestSeal: whatever the length of a stream, what is stored can be read back by Open, with its mark, size, hash and gap.
func TestSeal(t *testing.T) {
	const limit = 256 << 10
	var p gzipPool
	for _, size := range []int{0, 1, small, small + 1, limit, limit + markerRoom, 3 << 20} {
		var file bytes.Buffer
		s := (&spool{pool: &p, limit: limit, mark: []byte("Co\x01\x00x"), file: func() (io.Writer, error) { return &file, nil }})
		var in bytes.Buffer
		for n := 0; in.Len() < size; n++ {
			fmt.Fprintf(&in, "line %d\n", n)
		}
		in.Truncate(size)
		for p := in.Bytes(); len(p) > 0; {
			n := min(len(p), 50_000)
			s.Write(p[:n])
			p = p[n:]
		}
		sealed, err := s.Seal()
		if err != nil {
			t.Fatal(err)
		}
		s.Discard() // does nothing
		m, err := openMember(&file)
		if err != nil {
			t.Fatal(err)
		}
		back, err := io.ReadAll(m)
		if err != nil || int64(len(back)) != sealed.Bytes || sha256.Sum256(back) != sealed.SHA256 || string(m.Mark()) != "Co\x01\x00x" {
			t.Errorf("%d: %d bytes of %d, %v", size, len(back), sealed.Bytes, err)
		}
		if (sealed.Gap != nil) != (size > limit) || (sealed.Size >= 0) != (size <= small) {
			t.Errorf("%d: %+v", size, sealed)
		}
		if g := sealed.Gap; g != nil {
			marker := string(back[g.Offset:][:g.Marker])
			whole := string(back[:g.Offset]) + string(in.Bytes()[g.Offset:][:g.Bytes]) + string(back[g.Offset+g.Marker:])
			if marker != g.Line()+"\n" || whole != in.String() || int64(len(back)) > limit+markerRoom {
				t.Errorf("%d: %+v, %q", size, g, marker)
			}
		}
	}
}

// TestErrors: Seal returns the error of the file, at whichever length of the stream it occurs.
func TestErrors(t *testing.T) {
	var p gzipPool
	full := errors.New("the disk is full")
	for _, size := range []int{1, small + 1, 1 << 20} {
		for name, file := range map[string]func() (io.Writer, error){
			"open":  func() (io.Writer, error) { return nil, full },
			"write": func() (io.Writer, error) { return failingWriter{full}, nil },
		} {
			s := &spool{pool: &p, limit: 64 << 20, file: file}
			s.Write([]byte(strings.Repeat("x", size)))
			s.Write([]byte("y"))
			if _, err := s.Seal(); !errors.Is(err, full) {
				t.Errorf("%s, %d: %v", name, size, err)
			}
		}
	}
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

// TestMemberRefuses: what is not exactly one gzip member is an error.
func TestMemberRefuses(t *testing.T) {
	var p gzipPool
	var b bytes.Buffer
	if _, err := p.short(&b, nil, []byte("text")); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	for name, b := range map[string][]byte{
		"nothing":     nil,
		"no header":   []byte("text that is not gzip"),
		"cut":         whole[:len(whole)-1],
		"byte after":  append(bytes.Clone(whole), 0),
		"two members": append(bytes.Clone(whole), whole...),
	} {
		m, err := openMember(bytes.NewReader(b))
		if err == nil {
			_, err = io.ReadAll(m)
		}
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
