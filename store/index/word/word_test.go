package word

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// words returns the words of a text, with a + before parts.
func words(text string) []string {
	var s Scanner
	s.Reset(text)
	var all []string
	for s.Next() {
		w := string(s.Word())
		if s.Part {
			w = "+" + w
		}
		all = append(all, w)
	}
	return all
}

func TestWords(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{" .,;:-_/\\\"'()\x00\n", ""},
		{"Connection refused: 10.0.0.1", "connection refused 10 0 0 1"},
		{"connection_refused module_200", "connection refused module 200"},
		{"connectionRefused", "connectionrefused +connection +refused"},
		{"HTTPServer", "httpserver +http +server"},
		{"parseURL", "parseurl +parse +url"},
		{"aString", "astring +string"},
		{"XMLHttpRequest", "xmlhttprequest +xml +http +request"},
		{"NullPointerException", "nullpointerexception +null +pointer +exception"},
		{"module200", "module200 +module +200"},
		{"x8 a1b2c3d4 0xdeadbeef 512MiB sha256Sum", "x8 a1b2c3d4 0xdeadbeef 512mib +512 +mi sha256sum +sha256 +sum"},
		{"2026-01-02T03:04:05.678Z", "2026 01 02t03 04 05 678z"},
		{"don't", "don t"},
		{"Café Zürich straße ÆON ŁÓDŹ", "cafe zurich strasse aeon lodz"},
		{"cafe\u0301", "cafe"},
		{"ПРИВЕТ мир", "привет мир"},
		{"接続拒否", "接続 続拒 拒否"},
		{"錯 x", "錯 x"},
		{"error接続失敗code", "error 接続 続失 失敗 code"},
		{"연결 거부", "연결 거부"},
		{"hindi हिन्दी", "hindi हिन्दी"},
		{"deployed 🚀🔥 ok", "deployed 🚀 🔥 ok"},
		{"┌──┐ ░▒▓", ""},
		{"bad \xff\xfe bytes\x80x", "bad bytes x"},
		{"nul\x00byte", "nul byte"},
		{strings.Repeat("a", 100) + " b", strings.Repeat("a", Max) + " b"},
		{strings.Repeat("я", 100), strings.Repeat("я", Max/2)},
	} {
		if got := strings.Join(words(c.text), " "); got != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.text, got, c.want)
		}
	}
}

// TestPositions checks the positions of words.
func TestPositions(t *testing.T) {
	const text = "é fooBar: 接続拒 Ünit7"
	var s Scanner
	s.Reset(text)
	var got []string
	for s.Next() {
		got = append(got, text[s.Start:s.End])
	}
	if want := []string{"é", "fooBar", "foo", "Bar", "接続", "続拒", "Ünit7"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestStem uses the examples of the paper, and results of its author's program.
func TestStem(t *testing.T) {
	for _, c := range strings.Fields(`
		caresses:caress ponies:poni ties:ti caress:caress cats:cat feed:feed proceed:proce plastered:plaster bled:bled
		motoring:motor sing:sing conflated:conflat troubled:troubl sized:size hopping:hop tanned:tan falling:fall
		hissing:hiss fizzed:fizz failing:fail filing:file happy:happi sky:sky relational:relat conditional:condit
		rational:ration valenci:valenc hesitanci:hesit digitizer:digit conformabli:conform radicalli:radic
		differentli:differ vileli:vile analogousli:analog vietnamization:vietnam predication:predic operator:oper
		feudalism:feudal decisiveness:decis hopefulness:hope callousness:callous formaliti:formal sensitiviti:sensit
		sensibiliti:sensibl triplicate:triplic formative:form formalize:formal electriciti:electr electrical:electr
		hopeful:hope goodness:good revival:reviv allowance:allow inference:infer airliner:airlin gyroscopic:gyroscop
		adjustable:adjust defensible:defens irritant:irrit replacement:replac adjustment:adjust dependent:depend
		adoption:adopt homologou:homolog communism:commun activate:activ angulariti:angular homologous:homolog
		effective:effect bowdlerize:bowdler probate:probat rate:rate cease:ceas roll:roll
		connection:connect connections:connect connected:connect connecting:connect refused:refus refuses:refus
		timeout:timeout retries:retri retrying:retri generalizations:gener oscillators:oscil is:is a:a be:be
		x86s:x86s привет:привет us:us this:thi yes:ye ing:ing ed:ed eed:eed ion:ion ly:ly`) {
		w, want, _ := strings.Cut(c, ":")
		if got := string(Stem([]byte("kept "), []byte(w))); got != "kept "+want {
			t.Errorf("%s: %s, want %s", w, got, want)
		}
	}
}

func TestStop(t *testing.T) {
	if !Stop("the") || Stop("error") || Stop("") {
		t.Error("the is a stop word, error is none")
	}
}

// FuzzWords checks that words of any text are valid, bounded, folded, and at their positions.
func FuzzWords(f *testing.F) {
	for _, s := range []string{"connectionRefused_200 Café", "接続拒否 🚀", "\xff\x00a\u0301B", "aB1cD2", "İIıSS ẞ"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s, again Scanner
		s.Reset(text)
		end := 0
		for s.Next() {
			w := string(s.Word())
			switch {
			case w == "" || len(w) > Max || !utf8.ValidString(w):
				t.Fatalf("word %q", w)
			case s.Start < 0 || s.Start >= s.End || s.End > len(text):
				t.Fatalf("word %q at %d to %d of %d", w, s.Start, s.End, len(text))
			case !s.Part && s.Start < end && !isDense([]rune(w)[0]):
				t.Fatalf("word %q begins within the one before", w)
			case len(Stem(nil, []byte(w))) > len(w):
				t.Fatalf("the stem of %q is longer", w)
			}
			if !s.Part {
				end = s.End
			}
			if again.Reset(w); !again.Next() {
				t.Fatalf("word %q has no word in it", w)
			}
		}
	})
}

// TestStemsArePinned: stems are those that existing knowledge bases contain. Another sum needs another db.SchemaVersion.
func TestStemsArePinned(t *testing.T) {
	roots := strings.Fields("connect relat assembl analog compat happ hop fall knee troubl siz condition vietnam digit oper feudal decis " +
		"hope call form sensib triplic electr good reviv allow infer airlin gyroscop adjust defens irrit replac depend adopt " +
		"homolog commun activ angular effect bowdl rat ceas control roll x ab tree by tr y oat toy queue grokk abb fizz mess ble logi")
	endings := strings.Fields("s es ies sses ed eed ing at bl iz y ational ization iveness fulness ousness tional biliti entli ousli ation " +
		"alism aliti iviti enci anci izer alli ator logi logy bli bly eli icate ative alize iciti ical ness ful ement ance ence " +
		"able ible ment ant ent ism ate iti ous ive ize ion al er ic ou e ll ly")
	sum := sha256.New()
	for _, root := range roots {
		for _, end := range append(endings, "") {
			for _, last := range append(endings, "") {
				sum.Write(append(Stem(nil, []byte(root+end+last)), '\n'))
			}
		}
	}
	const want = "171d1823a00665ab9456ec9d50df71c97564319082013f47d94df1b2138b982c"
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		t.Errorf("the stems have the sum %s, not %s", got, want)
	}
}
