package index

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// corpus maps names to small texts that the names describe.
var corpus = map[string]string{
	"refused":   "dial tcp 10.0.0.7:5432\nerror: connection refused by the database\nretrying in 5 seconds\n",
	"timeouts":  "the request timeouts are caused by slow upstream servers\n",
	"camel":     "at com.example.ConnectionPool.acquireLease(ConnectionPool.java:117)\n",
	"snake":     "max_open_files=1024 module_200 loaded\n",
	"compound":  "the threadpool has been exhausted\n",
	"apart":     "connection to the store was opened\nall is well\nnothing else\nthe offer was refused\n",
	"accents":   "le café de Zürich est fermé\n",
	"japanese":  "データベース接続が拒否されました\n",
	"russian":   "Соединение отклонено сервером\n",
	"emoji":     "deployed 🚀 to production\n",
	"percent":   "progress 100% done_with_it\n",
	"operators": "the words AND, OR, NOT and NEAR are in capitals here\n",
	"numbers":   "exit status 137 after 4096 ms, sha a1b2c3d4e5f6\n",
}

func openCorpus(t testing.TB) *Index {
	x := openIndex(t, Options{})
	for name, text := range corpus {
		add(t, x, Source{Label: name, Fixed: true}, text)
	}
	return x
}

// TestFinds checks which source a query finds first.
func TestFinds(t *testing.T) {
	x := openCorpus(t)
	for _, c := range []struct{ why, query, want string }{
		{"word", "database", "refused"},
		{"case", "DATABASE", "refused"},
		{"stem", "connections refusing", "refused"},
		{"stem", "timeout", "timeouts"},
		{"stem", "timed servers slowly", "timeouts"},
		{"all words of one line first", "connection refused", "refused"},
		{"any word", "database zebra giraffe", "refused"},
		{"a letter less", "databse", "refused"},
		{"a letter more", "exhaussted", "compound"},
		{"another letter", "productiom", "emoji"},
		{"letters exchanged", "exhausetd", "compound"},
		{"two typos in a long word", "seerver conecton refusedd", "refused"},
		{"first letter", "eployed", "emoji"},
		{"short word", "wlel", "apart"},
		{"typo and ending", "upstraems", "timeouts"},
		{"part of camel case", "lease", "camel"},
		{"whole of camel case", "connectionpool", "camel"},
		{"camel case for words", "ConnectionRefused", "refused"},
		{"words run together", "connectionrefused", "refused"},
		{"part of a name", "module", "snake"},
		{"name", "module_200", "snake"},
		{"name", "max_open_files", "snake"},
		{"part of a word", "threads", "compound"},
		{"part of a word", "hausted", "compound"},
		{"without accents", "cafe zurich", "accents"},
		{"with accents", "CAFÉ", "accents"},
		{"decomposed", "cafe\u0301", "accents"},
		{"no spaces", "拒否", "japanese"},
		{"no spaces", "データベース", "japanese"},
		{"Cyrillic", "соединение", "russian"},
		{"Cyrillic typo", "соеденение", "russian"},
		{"emoji", "🚀", "emoji"},
		{"number", "137", "numbers"},
		{"hash", "a1b2c3d4e5f6", "numbers"},
		{"stop words drop out", "what is the progress of this", "percent"},
		{"NUL", "data\x00 \x00database", "refused"},
		{"invalid UTF-8", "\xff\xfedatabase\xc3", "refused"},
	} {
		f := find(t, x, Query{Text: c.query})
		if len(f.Hits) == 0 || f.Hits[0].Source != c.want {
			t.Errorf("%s: %q found %v, want %s", c.why, c.query, names(f), c.want)
		}
	}
}

func names(f *Found) []string {
	var all []string
	for _, h := range f.Hits {
		all = append(all, h.Source)
	}
	return all
}

// TestFindsNothing checks that no query text is an error, and that text without words finds nothing.
func TestFindsNothing(t *testing.T) {
	x := openCorpus(t)
	for _, query := range []string{
		"", " ", "\x00", `"`, `""`, `"""`, "*", "%", "_", "-", "^", "()", "{}", ":", "+", "....", "'; DROP TABLE chunks; --",
		"qqqzzzxxx", "\xff", "zz", `"qqqq zzzz"`, "137137137", strings.Repeat("(", 2000), strings.Repeat("x ", 2000),
	} {
		f := find(t, x, Query{Text: query})
		if len(f.Hits) > 0 || f.Empty || f.Matched > 0 || len(f.Corrected) > 0 {
			t.Errorf("%.40q: %v %+v", query, names(f), f)
		}
	}
}

// TestOperators checks that operators of FTS5 are treated as words.
func TestOperators(t *testing.T) {
	x := openCorpus(t)
	for _, query := range []string{
		`database AND`, `database OR`, `NOT database`, `database NOT the`, `NEAR(database error)`, `title:database`,
		`database*`, `^database`, `{title content}: database`, `-database`, `"database`, `database"`, `da"tabase" database`,
		`(database`, `database)`, `database + error`, `database'`, `database;`, `database\`, `"" database`, `database AND NOT database`,
		`content:"database"`, `rowid:1 database`, `“database”`,
	} {
		f := find(t, x, Query{Text: query})
		if !slices.Contains(names(f), "refused") {
			t.Errorf("%q found %v", query, names(f))
		}
	}
}

// TestPhrase checks that texts that contain a quoted phrase come first, and that its words match individually otherwise.
func TestPhrase(t *testing.T) {
	x := openIndex(t, Options{})
	add(t, x, Source{Label: "apart", Fixed: true}, "refused what? refused the connection it was, refused refused the connection\n")
	add(t, x, Source{Label: "phrase", Fixed: true}, "a long line with many words in it before one says that a connection refused\n"+
		"more\nmore\n")
	for _, query := range []string{`"connection refused"`, `"connections refuse"`, `“connection refused” line`} {
		if f := find(t, x, Query{Text: query}); len(f.Hits) == 0 || f.Hits[0].Source != "phrase" {
			t.Errorf("%s found %v", query, names(f))
		}
	}
	if f := find(t, x, Query{Text: `"refused phrase connection"`}); len(f.Hits) != 2 {
		t.Errorf("a phrase that no text contains found %v", names(f))
	}
}

func TestCorrected(t *testing.T) {
	x := openCorpus(t)
	f := find(t, x, Query{Text: "databse CONECTON retrying zzzzzzz"})
	if len(f.Corrected) != 2 || f.Corrected["databse"] != "database" || f.Corrected["conecton"] != "connection" {
		t.Errorf("corrected %v", f.Corrected)
	}
	if f := find(t, x, Query{Text: "database"}); len(f.Corrected) > 0 {
		t.Errorf("corrected %v", f.Corrected)
	}
	if f := find(t, x, Query{Text: "dat tae wtl"}); len(f.Corrected) > 0 {
		t.Errorf("corrected %v, although the words are too short", f.Corrected)
	}
}

// TestFilters checks that sources are selected by a case-sensitive substring of their names.
func TestFilters(t *testing.T) {
	x := openIndex(t, Options{})
	for _, s := range []Source{
		{Label: "execute:shell", Artifact: "art-1", Stream: "stdout"},
		{Label: "execute:shell", Artifact: "art-2"},
		{Label: "execute:python"},
		{Label: "100%", Fixed: true},
		{Label: "a_b", Fixed: true},
		{Label: "axb", Fixed: true},
		{Label: "quote'\"", Fixed: true},
		{Label: "Execute:SHELL", Fixed: true},
	} {
		add(t, x, s, "kestrel in "+s.Label+s.Artifact+"\n")
	}
	for _, c := range []struct {
		q    Query
		want string
	}{
		{Query{}, "100% Execute:SHELL a_b axb execute:python#1 execute:shell#1 execute:shell#2 quote'\""},
		{Query{Source: "execute:shell"}, "execute:shell#1 execute:shell#2"},
		{Query{Source: "execute:shell#2"}, "execute:shell#2"},
		{Query{Source: "execute:"}, "execute:python#1 execute:shell#1 execute:shell#2"},
		{Query{Source: "shell#1", Exact: true}, ""},
		{Query{Source: "execute:shell#1", Exact: true}, "execute:shell#1"},
		{Query{Source: "%"}, "100%"},
		{Query{Source: "_"}, "a_b"},
		{Query{Source: "*"}, ""},
		{Query{Source: "'"}, "quote'\""},
		{Query{Source: "quote'\"", Exact: true}, "quote'\""},
		{Query{Exact: true}, ""},
		{Query{Artifact: "art-2"}, "execute:shell#2"},
		{Query{Artifact: "art-2", Source: "python"}, ""},
		{Query{Artifact: "art"}, ""},
	} {
		c.q.Text, c.q.Limit = "kestrel", 100
		got := names(find(t, x, c.q))
		slices.Sort(got)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v found %v, want %s", c.q, got, c.want)
		}
	}
}

func TestClasses(t *testing.T) {
	x := openIndex(t, Options{})
	add(t, x, Source{Label: "code", Class: Code}, "kestrel()\n")
	add(t, x, Source{Label: "prose", Class: Prose}, "kestrel flies\n")
	for class, want := range map[string]string{"": "code#1 prose#1", Code: "code#1", Prose: "prose#1", "poetry": ""} {
		f := find(t, x, Query{Text: "kestrel", Class: class})
		got := names(f)
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("class %q: %v", class, got)
		}
		for _, h := range f.Hits {
			if class != "" && h.Class != class {
				t.Errorf("hit of class %s, want %s", h.Class, class)
			}
		}
	}
}

// TestLines checks that the line of a hit is the one with most of the words, and that the marks are the words.
func TestLines(t *testing.T) {
	x := openIndex(t, Options{})
	add(t, x, Source{Label: "l"}, "connection opened\nconnections were REFUSED: reason\nrefused\n\n")
	f := find(t, x, Query{Text: "conecton refused"})
	if len(f.Hits) != 1 {
		t.Fatalf("%d hits", len(f.Hits))
	}
	h := f.Hits[0]
	if h.Line != "connections were REFUSED: reason" || h.LineNumber != 2 {
		t.Errorf("line %d: %q", h.LineNumber, h.Line)
	}
	var marked []string
	for _, m := range h.Marks {
		marked = append(marked, h.Text[m[0]:m[1]])
	}
	if want := []string{"connection", "connections", "REFUSED", "refused"}; !slices.Equal(marked, want) {
		t.Errorf("marked %q, want %q", marked, want)
	}
}

// TestNearFirst checks that lines that contain all words come before chunks that contain them in different lines.
func TestNearFirst(t *testing.T) {
	x := openIndex(t, Options{})
	var b strings.Builder
	for i := range 3000 {
		switch {
		case i == 1500:
			b.WriteString("planted: alpha beta gamma\n")
		case i%3 == 0:
			fmt.Fprintf(&b, "alpha alpha at %d\n", i)
		case i%3 == 1:
			fmt.Fprintf(&b, "beta beta at %d\n", i)
		default:
			fmt.Fprintf(&b, "gamma gamma at %d\n", i)
		}
	}
	add(t, x, Source{Label: "l"}, b.String())
	f := find(t, x, Query{Text: "alpha beta gamma"})
	if len(f.Hits) != 3 || f.Hits[0].Line != "planted: alpha beta gamma" || f.Hits[0].LineNumber != 1501 {
		t.Errorf("hits %+v", f.Hits)
	}
	if f.Matched < 100 || f.Cut {
		t.Errorf("matched %d, cut %v", f.Matched, f.Cut)
	}
}

func TestNewest(t *testing.T) {
	x := openIndex(t, Options{})
	for i, text := range []string{"kestrel kestrel kestrel", "kestrel and other words", "a kestrel far away in a long line of words"} {
		add(t, x, Source{Label: "l"}, fmt.Sprintf("%s %d\n", text, i))
	}
	if got := names(find(t, x, Query{Text: "kestrel", Newest: true})); !slices.Equal(got, []string{"l#3", "l#2", "l#1"}) {
		t.Errorf("newest first: %v", got)
	}
	if got := names(find(t, x, Query{Text: "kestrel", Newest: true, Limit: 1})); !slices.Equal(got, []string{"l#3"}) {
		t.Errorf("newest: %v", got)
	}
	if got := names(find(t, x, Query{Text: "kestrel words", Newest: true})); !slices.Equal(got, []string{"l#3", "l#2"}) {
		t.Errorf("newest with both words: %v", got)
	}
}

// TestSame checks that identical texts yield one hit, the newest.
func TestSame(t *testing.T) {
	x := openIndex(t, Options{})
	for range 5 {
		add(t, x, Source{Label: "l"}, "kestrel\n")
	}
	if f := find(t, x, Query{Text: "kestrel", Limit: 10}); !slices.Equal(names(f), []string{"l#5"}) || f.Matched != 5 {
		t.Errorf("found %v, matched %d", names(f), f.Matched)
	}
}

func TestLimit(t *testing.T) {
	x := openIndex(t, Options{})
	add(t, x, Source{Label: "l"}, numbered("w", 5000))
	for limit, want := range map[int]int{0: 3, -1: 3, 1: 1, 7: 7, 1000: 0} {
		got := len(find(t, x, Query{Text: "common", Limit: limit}).Hits)
		if limit == 1000 && got > 100 || limit != 1000 && got != want {
			t.Errorf("limit %d: %d hits, want %d", limit, got, want)
		}
	}
}

// TestCut checks that only the newest chunks of a very common word are examined, and that this is reported.
func TestCut(t *testing.T) {
	x := openIndex(t, Options{})
	for range 2 {
		add(t, x, Source{Label: "l"}, numbered("w", 3*4000*20/4))
	}
	n := stats(t, x).Sections
	if n <= 4000 {
		t.Fatalf("%d chunks are too few", n)
	}
	f := find(t, x, Query{Text: "common"})
	if !f.Cut || f.Matched != 4000 || len(f.Hits) != 3 {
		t.Errorf("cut %v, matched %d, hits %v", f.Cut, f.Matched, names(f))
	}
	// Of two words that are both too common, the newest chunks that contain both are examined.
	f = find(t, x, Query{Text: "common words", Limit: 50})
	if !f.Cut || f.Matched == 0 || len(f.Hits) != 50 {
		t.Errorf("two words: cut %v, matched %d, %d hits", f.Cut, f.Matched, len(f.Hits))
	}
	for _, h := range f.Hits {
		if h.Source != "l#2" || !strings.Contains(h.Line, "common words") {
			t.Errorf("two words: %+v", h)
			break
		}
	}
	// A rare word finds old chunks, even together with a common word.
	f = find(t, x, Query{Text: "common w17", Source: "l#1"})
	if len(f.Hits) == 0 || f.Hits[0].Source != "l#1" || f.Hits[0].LineNumber != 18 {
		t.Errorf("hits %+v", f.Hits)
	}
}

// TestWhole checks that texts are returned unchanged, in any script and size.
func TestWhole(t *testing.T) {
	x := openIndex(t, Options{})
	long := strings.Repeat("0123456789abcdef ", 20_000) + "kestrel " + strings.Repeat("x", 100_000)
	add(t, x, Source{Label: "long"}, long)
	h := find(t, x, Query{Text: "kestrel"}).Hits
	if len(h) != 1 || len(h[0].Text) > 4<<10 || !strings.Contains(h[0].Text, "kestrel") || !strings.Contains(h[0].Line, "kestrel") {
		t.Errorf("%d hits", len(h))
	}
	add(t, x, Source{Label: "bytes"}, "before\x00after \xff\xfe osprey \x1b[31mred\x1b[0m\n")
	h = find(t, x, Query{Text: "osprey"}).Hits
	if len(h) != 1 || !utf8.ValidString(h[0].Text) || !strings.Contains(h[0].Text, "red") {
		t.Errorf("hits %+v", h)
	}
	if a := add(t, x, Source{Label: "none"}, ""); a.Sections != 0 || a.Lines != 0 {
		t.Errorf("added %+v", a)
	}
}

func TestTitles(t *testing.T) {
	x := openIndex(t, Options{})
	add(t, x, Source{Label: "doc", Format: Markdown}, "# Install\n\nfirst\n\n## Linux\n\nuse the package\n\n## Plan 9\n\nlinux linux linux\n")
	f := find(t, x, Query{Text: "linux"})
	if len(f.Hits) != 2 || !strings.Contains(f.Hits[0].Title, "Linux") {
		t.Errorf("hits %+v", f.Hits)
	}
}
