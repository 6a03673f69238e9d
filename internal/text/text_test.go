package text

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEscape(t *testing.T) {
	for _, c := range []struct{ in, escape, lines, quote string }{
		{"", "", "", ""},
		{"plain/päth 世界 😀", "plain/päth 世界 😀", "plain/päth 世界 😀", "plain/päth 世界 😀"},
		{"a\nb\tc", `a\nb\tc`, "a\nb\tc", `"a\nb\tc"`},
		{"a\x1b[2Jb\rc", `a\x1b[2Jb\rc`, `a\x1b[2Jb\rc`, `"a\x1b[2Jb\rc"`},
		{"\x7f\u0085\u009b", `\x7f\u0085\u009b`, `\x7f\u0085\u009b`, `"\x7f\u0085\u009b"`},
		{"a\xffb\xe2\x82", `a\xffb\xe2\x82`, `a\xffb\xe2\x82`, `"a\xffb\xe2\x82"`},
		{"\u202egnp.exe", `\u202egnp.exe`, `\u202egnp.exe`, `"\u202egnp.exe"`},
		{"a\u2028b\u200bc\u00a0d", `a\u2028b\u200bc\u00a0d`, `a\u2028b\u200bc\u00a0d`, `"a\u2028b\u200bc\u00a0d"`},
		{"\U000e0001", `\U000e0001`, `\U000e0001`, `"\U000e0001"`},
		{`quotes " and \`, `quotes " and \`, `quotes " and \`, `"quotes \" and \\"`},
		{"\ufffd", "\ufffd", "\ufffd", "\ufffd"},
	} {
		if e, l, q := Escape(c.in), Lines(c.in), Quote(c.in); e != c.escape || l != c.lines || q != c.quote {
			t.Errorf("%q: %s, %s, %s; want %s, %s, %s", c.in, e, l, q, c.escape, c.lines, c.quote)
		}
	}
}

func TestLine(t *testing.T) {
	for _, c := range []struct {
		in   string
		most int
		want string
	}{
		{"", 5, ""},
		{"  a\r\n b\tc ", 10, "a b c"},
		{"ab cd ef", 5, "ab cd…"},
		{"a\x1bb", 10, `a\x1bb`},
		{"\u202e\u202e", 3, `\u202e…`},
		{strings.Repeat(" ", 1000) + "late", 5, "…"},
		{strings.Repeat("xy ", 1000), 5, "xy xy…"},
	} {
		if got := Line(c.in, c.most); got != c.want {
			t.Errorf("%.40q, %d: %q, want %q", c.in, c.most, got, c.want)
		}
	}
}

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
		for form, shown := range map[string]string{"Escape": Escape(s), "Quote": Quote(s), "Line": Line(s, most), "Lines": strings.NewReplacer("\n", "", "\t", "").Replace(Lines(s))} {
			if acts(shown) {
				t.Errorf("%s of %q is %q", form, s, shown)
			}
		}
		if !acts(s) && Escape(s) != s {
			t.Errorf("%q is escaped for nothing: %q", s, Escape(s))
		}
		if q, err := strconv.Unquote(`"` + strings.ReplaceAll(Escape(s), `"`, `\"`) + `"`); !strings.Contains(s, `\`) && (err != nil || q != s) {
			t.Errorf("%q is escaped as %q, which means %q", s, Escape(s), q)
		}
		if line := Line(s, most); most >= 0 && most < 1000 && len(line) > 4*most+len("…") {
			t.Errorf("a line of at most %d bytes has %d", most, len(line))
		}

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

// TestCharacters: a text is never cut within a character, whatever follows or precedes it.
func TestCharacters(t *testing.T) {
	const s = "aé世\U0001F600b"
	for n := range len(s) + 2 {
		head, tail := Head(s, n), Tail(s, n)
		if len(head) > n || len(tail) > n || !utf8.ValidString(head) || !utf8.ValidString(tail) ||
			!strings.HasPrefix(s, head) || !strings.HasSuffix(s, tail) || min(n, len(s))-len(head) > 3 || min(n, len(s))-len(tail) > 3 {
			t.Errorf("%d: %q, %q", n, head, tail)
		}
	}
	for in, want := range map[string]string{"": "", "a\xff": "a\xff", "a\xe4\xb8": "a", "\xe4": "", "a\x80\x80\x80\x80": "a\x80\x80\x80\x80"} {
		if got := Complete(in); got != want {
			t.Errorf("Complete(%q): %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{"": "", "\x96a": "a", "\x80\x80\x80a": "a", "\x80\x80\x80\x80\x80": "\x80\x80\x80\x80\x80", "\xffa": "\xffa"} {
		if got := Rest(in); got != want {
			t.Errorf("Rest(%q): %q, want %q", in, got, want)
		}
	}
}
