package edit

import (
	"reflect"
	"strings"
	"testing"
)

// TestEncode: a request is read as it was written, and nothing else is accepted.
func TestEncode(t *testing.T) {
	empty, odd, long := "", "a\n\u2028\"\t<\r", strings.Repeat("x", MaxText)
	for _, r := range []Request{
		{Path: "f", Old: &odd, New: &empty}, {Path: "", Patch: &odd}, {Path: odd, Old: &long, New: &long, Patch: &long}, {Old: &odd, New: &empty, All: true}, {},
	} {
		text := r.Encode()
		var got Request
		if err := decode(strings.NewReader(text), &got); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%.80q: %+v, %v", text, got, err)
		}
		for n := range min(len(text), 40) {
			if err := decode(strings.NewReader(text[:n]), &got); err == nil {
				t.Errorf("%d bytes of %.80q: %+v", n, text, got)
			}
		}
		if err := decode(strings.NewReader(text+"x"), &got); err == nil {
			t.Errorf("%.80q and a byte: %+v", text, got)
		}
	}
	if err := decode(strings.NewReader(strings.Repeat(" ", maxRequest)+"{}"), new(Request)); err == nil {
		t.Error("too long a request")
	}
	r := FileRequest{Op: OpWrite, Path: "/f", Data: []byte("\x00\xff\n")}
	if got, err := readFiles(strings.NewReader(r.Encode())); err != nil || string(got.Data) != "\x00\xff\n" {
		t.Errorf("%+v, %v", got, err)
	}
	r.Data = make([]byte, MaxFile+1)
	if got, err := readFiles(strings.NewReader(r.Encode())); err == nil {
		t.Errorf("%d bytes were accepted", len(got.Data))
	}
}
