package ctxtools

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"corral/internal/test/mcptest"
	"corral/mcp/tool"
	"corral/store/artifact"
)

// TestWindow: which part of a stream is returned, given its head, its tail and the bytes between them.
func TestWindow(t *testing.T) {
	const all = "one\ntwo\nthree\nfour\n"
	for _, tt := range []struct {
		name         string
		head, tail   string
		between      int64
		tailN, from  int
		want         string
		at, next     int64
		total, lacks int64
	}{
		{"all", all, "", 0, -1, -1, all, 0, 19, 19, 0},
		{"all, in two", all[:5], all[5:], 0, -1, -1, all, 0, 19, 19, 0},
		{"nothing", "", "", 0, -1, -1, "", 0, 0, 0, 0},
		{"nothing, from a byte on", "", "", 0, -1, 7, "", 0, 0, 0, 0},
		{"its last line", all, "", 0, 1, -1, "four\n", 14, 19, 19, 0},
		{"its last lines", all, "", 0, 3, -1, "two\nthree\nfour\n", 4, 19, 19, 0},
		{"more lines than there are", all, "", 0, 9, -1, all, 0, 19, 19, 0},
		{"a last line without an end", "one\ntwo", "", 0, 1, -1, "two", 4, 7, 7, 0},
		{"an empty last line", "one\n\n", "", 0, 1, -1, "\n", 4, 5, 5, 0},
		{"from a byte on", all, "", 0, -1, 4, all[4:], 4, 19, 19, 0},
		{"from a byte on, in two", all[:8], all[8:], 0, -1, 10, all[10:], 10, 19, 19, 0},
		{"from its end", all, "", 0, -1, 19, "", 19, 19, 19, 0},
		{"from after its end", all, "", 0, -1, 99, "", 19, 19, 19, 0},
		{"offset before tail", all, "", 0, 1, 14, "four\n", 14, 19, 19, 0},
		{"a middle is missing", all[:8], all[14:], 6, -1, -1, "four\n", 14, 19, 19, 14},
		{"before the missing middle", all[:8], all[14:], 6, -1, 4, "two\n", 4, 8, 19, 0},
		{"within the missing middle", all[:8], all[14:], 6, -1, 10, "four\n", 14, 19, 19, 4},
		{"after the missing middle", all[:8], all[14:], 6, -1, 16, "ur\n", 16, 19, 19, 0},
		{"the last line, a middle is missing", all[:8], all[14:], 6, 1, -1, "four\n", 14, 19, 19, 0},
	} {
		a := &jobArgs{}
		if tt.tailN >= 0 {
			a.Tail = &tt.tailN
		}
		if tt.from >= 0 {
			a.Offset = &tt.from
		}
		got := a.cut(&artifact.StreamCapture{Head: tt.head, Tail: tt.tail, Between: tt.between})
		if want := (part{tt.want, tt.at, tt.next, tt.total, tt.lacks}); got != want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, want)
		}
	}
}

// TestWindowBounds: a part has at most rawOutput bytes, from the offset or at the end of the stream.
func TestWindowBounds(t *testing.T) {
	all := strings.Repeat("0123456789abcde\n", 100_000)
	for _, tt := range []struct {
		from int
		at   int64
	}{{-1, int64(len(all) - rawOutput)}, {0, 0}, {48, 48}, {len(all) - 10, int64(len(all) - 10)}} {
		w := &window{from: int64(max(tt.from, 0)), max: rawOutput, last: tt.from < 0}
		for rest := all; len(rest) > 0; {
			n := min(len(rest), 37_001)
			if got, err := w.Write([]byte(rest[:n])); got != n || err != nil {
				t.Fatal(got, err)
			}
			rest = rest[n:]
		}
		p := w.part()
		want := all[tt.at:min(int(tt.at)+rawOutput, len(all))]
		if p.text != want || p.from != tt.at || p.next != tt.at+int64(len(want)) || p.total != int64(len(all)) || cap(w.text) > 8*rawOutput {
			t.Errorf("from %d: %d bytes at %d, next %d of %d; capacity %d", tt.from, len(p.text), p.from, p.next, p.total, cap(w.text))
		}
	}
}

// TestWindowCharacters: the parts of a stream are cut between characters, and together are all of it.
func TestWindowCharacters(t *testing.T) {
	all := strings.Repeat("aé世\U0001F600", 50_000)
	read := func(w *window) part {
		if _, err := w.Write([]byte(all)); err != nil {
			t.Fatal(err)
		}
		return w.part()
	}
	var got strings.Builder
	for at := int64(0); at < int64(len(all)); {
		p := read(&window{from: at, max: 997})
		if !utf8.ValidString(p.text) || p.from != at || p.next != at+int64(len(p.text)) || len(p.text) < 990 && p.next < p.total {
			t.Fatalf("at %d: %d bytes at %d, next %d: %q", at, len(p.text), p.from, p.next, p.text)
		}
		got.WriteString(p.text)
		at = p.next
	}
	if got.String() != all {
		t.Error("the parts are not all of the stream")
	}
	for n := range 5 {
		if p := read(&window{max: 997 + n, last: true}); !utf8.ValidString(p.text) || p.from != int64(len(all)-len(p.text)) || p.next != p.total {
			t.Errorf("the end: %d bytes at %d, next %d: %q", len(p.text), p.from, p.next, p.text)
		}
	}
}

// TestCtxJobArguments: the messages for invalid arguments.
func TestCtxJobArguments(t *testing.T) {
	x, _ := newCtx(t, mcptest.NewFakeRunner())
	for _, tt := range []struct{ arguments, want string }{
		{`{}`, "id: is required"},
		{`{"id":"bg_1"}`, "action: is required"},
		{`{"id":"bg_1","action":"signal","signal":"SEGV"}`, `signal: "SEGV" is not one of: TERM, INT, HUP, QUIT, KILL, USR1, USR2, STOP, CONT`},
		{`{"id":"bg_1","action":"output","more":[1]}`, "id: there is no job bg_1"},
	} {
		if _, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Job{x}, tt.arguments); !r.IsError || !strings.HasPrefix(r.Text, tt.want) {
			t.Errorf("%s: %q", tt.arguments, r.Text)
		}
	}
}

// TestArtifactErrors: stored output that is gone or damaged has a code of its own, and other trouble stays what it is.
func TestArtifactErrors(t *testing.T) {
	for _, tt := range []struct {
		err  error
		code string
	}{
		{fmt.Errorf("x: %w", artifact.ErrExpired), tool.CodeExpired},
		{fmt.Errorf("x: %w", artifact.ErrNotFound), tool.CodeExpired},
		{fmt.Errorf("x: %w", artifact.ErrCorrupt), tool.CodeCorrupt},
	} {
		var e *tool.Error
		if err := artifactError(tt.err); !errors.As(err, &e) || e.Code != tt.code || strings.Contains(e.Message, "x: ") {
			t.Errorf("%v: %v, want code %s", tt.err, err, tt.code)
		}
	}
	if err := artifactError(os.ErrPermission); !errors.Is(err, os.ErrPermission) {
		t.Errorf("another error became %v", err)
	}
}
