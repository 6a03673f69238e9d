package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestLines: lines are read whole from a stream that returns one byte at a time.
func TestLines(t *testing.T) {
	l := newLineReader(iotest.OneByteReader(strings.NewReader("a\nbb\r\n\n"+strings.Repeat("x", 11)+"\n0123456789\nlast")), 10)
	for _, want := range []string{"a", "bb\r", "", "long", "0123456789", "last", "EOF"} {
		line, err := l.next()
		var long *tooLongError
		switch {
		case want == "long" && errors.As(err, &long):
		case want == "EOF" && errors.Is(err, io.EOF):
		case err != nil || string(line) != want:
			t.Errorf("%q, %v; want %s", line, err, want)
		}
	}
}

// FuzzMessage: the parser never panics; an accepted message decodes the same with encoding/json, and so does
// its envelope.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{
		toCall("1", "echo", `{"a":[1,{"b":"\u0041"}]}`), ping, initialize("2025-06-18"), `{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}`,
		`{"jsonrpc":"2.0","id":"\ud800","method":"x","params":{"_meta":{` + modernMeta[9:] + `}}`, ` { } `, `[1]`, "\xff", `{"a":{"A":1,"a":2}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseMessage(data)
		if err != nil || m.id == nil || m.method == "" {
			return
		}
		type plain struct {
			ID     json.RawMessage            `json:"id"`
			Method string                     `json:"method"`
			Params map[string]json.RawMessage `json:"params"`
		}
		var was, is plain
		if err := json.Unmarshal(data, &was); err != nil {
			t.Fatalf("accepted, but invalid: %v", err)
		}
		if err := json.Unmarshal(m.envelope(), &is); err != nil {
			t.Fatalf("invalid envelope: %v", err)
		}
		if m.method != was.Method || is.Method != was.Method || !bytes.Equal(m.id, was.ID) || !bytes.Equal(is.ID, was.ID) {
			t.Fatalf("%s %s: %s", m.id, m.method, data)
		}
		if m.isCall() && m.fault == nil && was.Params["arguments"] != nil && !bytes.Equal(m.arguments, was.Params["arguments"]) {
			t.Fatalf("arguments %s: %s", m.arguments, data)
		}
		for key := range is.Params {
			if _, ok := was.Params[key]; !ok {
				t.Fatalf("%s is new: %s", key, data)
			}
		}
	})
}

// FuzzLines: for any input the lines are those of the text, and overlong ones are skipped.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\n\nccc"), uint8(2))
	f.Add([]byte(`{"params":{"x":"`+strings.Repeat("y", 100)+`"},"id":4}`+"\n{}"), uint8(20))
	f.Fuzz(func(t *testing.T, data []byte, limit uint8) {
		l := newLineReader(iotest.HalfReader(bytes.NewReader(data)), int(limit))
		for _, want := range bytes.SplitAfter(data, []byte{'\n'}) {
			if len(want) == 0 {
				continue
			}
			got, err := l.next()
			var long *tooLongError
			switch {
			case len(bytes.TrimSuffix(want, []byte{'\n'})) > int(limit):
				if !errors.As(err, &long) {
					t.Fatalf("%q: %q, %v", want, got, err)
				}
				if long.id != nil && !bytes.Contains(want, long.id) {
					t.Fatalf("%q: id %s", want, long.id)
				}
			case err != nil || !bytes.Equal(got, bytes.TrimSuffix(want, []byte{'\n'})):
				t.Fatalf("%q: %q, %v", want, got, err)
			}
		}
		if got, err := l.next(); !errors.Is(err, io.EOF) {
			t.Fatalf("after the end: %q, %v", got, err)
		}
	})
}
