package index

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestParts checks which words have parts.
func TestParts(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{" .,;:-_/\\\"'()\x00\n", ""},
		{"Connection refused: 10.0.0.1 don't ПРИВЕТ 연결 hindi हिन्दी café", ""},
		{"connectionRefused", "connection refused"},
		{"HTTPServer parseURL aString", "http server parse url string"},
		{"XMLHttpRequest NullPointerException", "xml http request null pointer exception"},
		{"module_200 module200 512MiB", "module 200 512 mi"},
		{"x8 a1b2c3d4 0xdeadbeef sha256Sum 2026-01-02T03:04:05.678Z", ""},
		{"接続拒否 錯 x", "接続 続拒 拒否 錯"},
		{"error接続失敗code データベース", "error 接続 続失 失敗 code デー ータ タベ ベー ース"},
		{"deployed 🚀🔥 ok ┌──┐ ░▒▓", "u1f680 u1f525"},
		{"bad \xff\xfe bytes\x80xY", ""},
		{strings.Repeat("aB", 40), ""},
	} {
		var got []string
		eachWord(c.text, func(w string) { got = append(got, partsOf(w)...) })
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.text, strings.Join(got, " "), c.want)
		}
	}
}

// FuzzWords checks that the words of any text are in it, in order, and that their parts are valid words.
func FuzzWords(f *testing.F) {
	for _, s := range []string{"connectionRefused_200 Café", "接続拒否 🚀", "\xff\x00a\u0301B", "aB1cD2", "İIıSS ẞ"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rest := text
		eachWord(text, func(w string) {
			_, after, found := strings.Cut(rest, w)
			if !found || w == "" || !utf8.ValidString(w) {
				t.Fatalf("word %q", w)
			}
			rest = after
			for _, p := range partsOf(w) {
				var words []string
				if eachWord(p, func(w string) { words = append(words, w) }); !slices.Equal(words, []string{p}) {
					t.Fatalf("the part %q of %q has the words %q", p, w, words)
				}
			}
		})
	})
}

// TestHostileWords checks that correcting words examines a bounded number of similar words.
func TestHostileWords(t *testing.T) {
	x := openIndex(t, Options{})
	var text, query strings.Builder
	for i := range 30_000 / RaceScale {
		text.WriteString("qwertyuiopasdfgh" + string([]byte{'a' + byte(i%26), 'a' + byte(i/26%26), 'a' + byte(i/676%26)}) + "jklzxcvbnm\n")
	}
	for i := range byte(20) {
		query.WriteString("qwertyuiopasdfgh" + string([]byte{'a' + i}) + "jklzxcvbnm ")
	}
	add(t, x, Source{Label: "l"}, text.String())
	err := x.with(t.Context(), testBase, false, func(b *base) error {
		tx, err := b.Read.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		s := &search{ctx: t.Context(), tx: tx, query: Query{Text: query.String(), Limit: 3}, found: &Found{}}
		if err := s.run(); err != nil {
			return err
		}
		if s.gathered == 0 || s.gathered > maxGathered {
			t.Errorf("%d words were examined", s.gathered)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
