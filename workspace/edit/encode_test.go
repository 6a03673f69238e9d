package edit

import (
	"reflect"
	"strings"
	"testing"
)

// TestEncode: a request is read as it was written, byte by byte, and nothing else is accepted.
func TestEncode(t *testing.T) {
	empty, odd, long := "", "a\xff\n\u2028\"", strings.Repeat("x", MaxText)
	for _, r := range []Request{
		{Path: "f", Old: &odd, New: &empty}, {Path: "", Patch: &odd}, {Path: odd, Old: &long, New: &long, Patch: &long}, {Old: &odd, New: &empty, All: true}, {},
	} {
		text := r.Encode()
		got, err := read(strings.NewReader(text))
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%.80q: %+v, %v", text, got, err)
		}
		for n := range min(len(text), 40) {
			if got, err := read(strings.NewReader(text[:n])); err == nil {
				t.Errorf("%d bytes of %.80q: %+v", n, text, got)
			}
		}
		if got, err := read(strings.NewReader(text + "x")); err == nil {
			t.Errorf("%.80q and a byte: %+v", text, got)
		}
	}
	tooLong := long + "x"
	without := (&Request{Patch: &odd}).Encode()
	for name, text := range map[string]string{
		"too long": (&Request{Path: "f", Old: &tooLong, New: &empty}).Encode(), "too long a path": (&Request{Path: tooLong, Patch: &odd}).Encode(),
		"no path": "\xff\xff\xff\xff" + without[4:], "JSON": `{"path":"f","old":"a","new":"b"}`, "none": "",
	} {
		if got, err := read(strings.NewReader(text)); err == nil {
			t.Errorf("%s: %.80v", name, got)
		}
	}
}
