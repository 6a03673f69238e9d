package text

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestJSON(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", `{"a":"b"}` + "\n", `{"a":"b"}` + "\n"},
		{"indented", "{\n\t\"a\": 1\r\n}", "{\n\t\"a\": 1\r\n}"},
		{"printed", `"päth 世界 😀"`, `"päth 世界 😀"`},
		{"escapes that are there", `"\n\u001b\\"`, `"\n\u001b\\"`},
		{"DEL and C1", "\"\x7f\u0080\u009b2J\u009f\"", `"\u007f\u0080\u009b2J\u009f"`},
		{"direction", "\"\u202egnp.exe\u2066\u200f\u061c\"", `"\u202egnp.exe\u2066\u200f\u061c"`},
		{"lines and width", "\"\u2028\u2029\u200b\ufeff\u00ad\"", `"\u2028\u2029\u200b\ufeff\u00ad"`},
		{"beyond the first plane", "\"\U000e0001\"", `"\udb40\udc01"`},
		{"no text", "\"a\xff\xe2\x82\"", `"a\ufffd\ufffd\ufffd"`},
		{"text that has U+FFFD", "\"\ufffd\"", "\"\ufffd\""},
		{"nothing", "", ""},
	} {
		if got := string(JSON([]byte(c.in))); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in   string
		most int
		want string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc…"},
		{"a", 0, "…"},
		{"a", -1, "…"},
		{"aäb", 2, "a…"},
		{"aäb", 3, "aä…"},
		{"a😀", 2, "a…"},
		{"a😀", 4, "a…"},
		{"a😀", 5, "a😀"},
		{"😀😀", 4, "😀…"},
		{"\xff\xff\xff", 2, "\xff\xff…"},
		{"\x80\x80\x80\x80\x80\x80", 5, "\x80\x80\x80\x80\x80…"},
		{"ab\xe2\x82xy", 4, "ab…"},
		{strings.Repeat("x", 1<<20), 10, "xxxxxxxxxx…"},
	} {
		if got := Cut(c.in, c.most); got != c.want {
			t.Errorf("%q, %d: %q, want %q", c.in, c.most, got, c.want)
		}
	}
}

// acts finds a character that is not shown as itself.
func acts(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) })
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "plain", "a\x1b[2J\u009b\u202e\U000e0001\xff\xe2\x82", "\r\n\t\x7f", `\u202e"'`, "😀\xf0\x9f"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, most int) {
		cut := Cut(s, most)
		begin, shortened := strings.CutSuffix(cut, "…")
		switch {
		case len(s) <= most && cut != s, len(s) > most && (!shortened || len(begin) > max(most, 0) || !strings.HasPrefix(s, begin)):
			t.Errorf("%q cut at %d is %q", s, most, cut)
		case utf8.ValidString(s) && !utf8.ValidString(cut):
			t.Errorf("%q cut at %d has half of a character: %q", s, most, cut)
		case len(s) > most && most >= 0 && len(begin) < most-utf8.UTFMax+1:
			t.Errorf("%q cut at %d has lost more than half of a character: %q", s, most, cut)
		}

		raw, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var before, after any
		line := string(JSON(raw))
		if acts(line) {
			t.Errorf("%q has what acts on a terminal", line)
		}
		if err := json.Unmarshal(raw, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(line), &after); err != nil || !reflect.DeepEqual(before, after) {
			t.Errorf("%s means %q and not %q (%v)", line, after, before, err)
		}
	})
}
