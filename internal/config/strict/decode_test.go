package strict

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

type settings struct {
	Count   int               `yaml:"count" form:"number" min:"1" max:"10" default:"2"`
	Lift    int64             `yaml:"lift" form:"number" min:"1" max:"10" unlimited:"-1" default:"unlimited"`
	Flag    bool              `yaml:"flag"`
	Maybe   *bool             `yaml:"maybe"`
	Word    string            `yaml:"word" words:"red green" implied:"red"`
	Words   []string          `yaml:"in.words" form:"name" list:"some"`
	Section part              `yaml:"section"`
	Option  *part             `yaml:"option"`
	List    []part            `yaml:"list"`
	Names   map[string]string `yaml:"names" names:"name" form:"name"`
	Secret  string            `yaml:"secret" form:"name" scope:"supervisor"`
	Ignored int
}

type part struct {
	Time time.Duration `yaml:"time" form:"number" min:"0" max:"99"`
	Name string        `yaml:"name" form:"name"`
}

func testLanguage() Language {
	number := Number("a number", []string{"!!int"}, func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) },
		func(n int64) string { return strconv.FormatInt(n, 10) })
	return Language{
		Supervisor: "is not for users",
		Forms:      map[string]Form{"number": number, "name": Text("a name", func(s string) bool { return s != "bad" })},
	}
}

// decoded returns the settings of files, the last of which is a user's if there are several.
func decoded(files ...string) (s settings, err error) {
	r := &Reader{Language: testLanguage()}
	r.Language.SetDefaults(&s)
	for i, content := range files {
		r.Decode(r.Parse("f"+strconv.Itoa(i), []byte(content), i > 0), "", &s)
	}
	return s, r.Err()
}

// TestDecode: every kind of field is decoded, and written such that decoding returns the same.
func TestDecode(t *testing.T) {
	yes := true
	s, err := decoded("count: 3\nlift: 4\nflag: true\nmaybe: true\nword: green\nin: {words: [a, b]}\nsection: {time: 7}\noption: {name: o}\nlist: [{name: x}, {time: 1}]\nnames: {a: b}\nsecret: s\n")
	want := settings{
		Count: 3, Lift: 4, Flag: true, Maybe: &yes, Word: "green", Words: []string{"a", "b"}, Section: part{Time: 7}, Option: &part{Name: "o"},
		List: []part{{Name: "x"}, {Time: 1}}, Names: map[string]string{"a": "b"}, Secret: "s",
	}
	if err != nil || !reflect.DeepEqual(s, want) {
		t.Errorf("got %+v, %v", s, err)
	}
	for _, s := range []settings{want, {Count: 2, Lift: -1}, {Count: 2, Lift: -1, Option: &part{}, List: []part{}}, {Count: 1, Lift: 5, Words: []string{"true", "a: b", "7"}, Names: map[string]string{"no": "x\ny"}}} {
		written := testLanguage().Write(&s)
		if back, err := decoded(written); err != nil || !reflect.DeepEqual(back, s) {
			t.Errorf("%s\nis %+v, %v, was %+v", written, back, err, s)
		}
	}
}

// TestDecodeSeveral: the last file takes precedence, key by key in mappings.
func TestDecodeSeveral(t *testing.T) {
	s, err := decoded("count: 3\nsection: {time: 7}\noption: {time: 8}\nlist: [{name: x}]\nnames: {a: b, c: d}\n",
		"section: {name: n}\noption: {name: o}\nlist: []\nnames: {c: e}\n")
	if err != nil || s.Count != 3 || s.Section != (part{7, "n"}) || *s.Option != (part{8, "o"}) || len(s.List) != 0 || s.Names["a"]+s.Names["c"] != "be" {
		t.Errorf("got %+v, %v", s, err)
	}
	if _, err := decoded("secret: a\n", "secret: b\n"); err == nil || err.Error() != "f1:1:9: `secret` is not for users" {
		t.Errorf("a key that users must not have: %v", err)
	}
}

// TestHostileFiles: no file costs more than in proportion to its size, and each is refused.
func TestHostileFiles(t *testing.T) {
	bomb := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'z'; c++ {
		bomb += string(c) + ": &" + string(c) + " [*" + string(c-1) + strings.Repeat(", *"+string(c-1), 8) + "]\n"
	}
	for name, tt := range map[string]struct{ file, want string }{
		"aliases of aliases":    {bomb + "list: *z\n", "unknown key `a`"},
		"an alias of a list":    {"in: {words: &a [x]}\nlist: *a\n", "f0:2:7: `list`: must be a list, got an alias"},
		"an alias of a scalar":  {"count: &a 3\nlift: *a\n", "f0:2:7: `lift`: must be a number, got an alias"},
		"an alias of a mapping": {"list: [&a {time: 1}]\nsection: *a\n", "f0:2:10: `section`: must be a mapping (`key: value`), got an alias"},
		"an optional list":      {"option: []\n", "f0:1:9: `option`: must be a mapping (`key: value`), got a list"},
		"an alias of itself":    {"section: &a {name: *a}\n", "f0:1:20: `name`: must be a name, got an alias"},
		"an alias as a key":     {"section: &a x\n*a : 1\n", "a key must be a name, got an alias"},
		"an unknown anchor":     {"count: *nothing\n", "unknown anchor"},
		"a merge":               {"section: &a {time: 1}\n<<: *a\n", "unknown key `<<`"},
		"depth of lists":        {strings.Repeat("[", 200_000), "exceeded max depth"},
		"depth of mappings":     {strings.Repeat("{a: ", 100_000), "exceeded max depth"},
		"depth, balanced":       {"list: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "\n", "must be a mapping"},
		"a large number":        {"count: 1" + strings.Repeat("0", 500_000) + "\n", "must be a number, got \"1000"},
		"a number of base 60":   {"count: 1:30\n", "must be a number"},
		"a number with a tag":   {"count: !!int \"3x\"\n", "must be a number"},
		"a tag of ours":         {"count: !job 3\n", "must be a number"},
		"a tag of binary data":  {"in: {words: [!!binary aGk=]}\n", "must be a name"},
		"a long key":            {"? " + strings.Repeat("k", 300_000) + "\n: 1\n", "unknown key `kkk"},
		"many keys":             {strings.Repeat("count: 1\n", 50_000), "and 49979 more"},
		"invalid UTF-8":         {"in: {words: [\"\xff\"]}\n", "invalid"},
		"control characters":    {"in: {words: [\"\x01\"]}\n", "control characters"},
		"NUL":                   {"count: 1\x00\n", "control characters"},
		"half a document":       {"--- ", "the file"},
		"many documents":        {strings.Repeat("---\ncount: 1\n", 10_000), "one document"},
	} {
		began := time.Now()
		_, err := decoded(tt.file)
		if err == nil || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 20_000 {
			t.Errorf("%s: %.300v, want %q", name, err, tt.want)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
}

// TestBadTags: a mistake in a tag is found by the first use of the table.
func TestBadTags(t *testing.T) {
	for name, into := range map[string]any{
		"form": &struct {
			A int `yaml:"a" form:"none"`
		}{},
		"no form": &struct {
			A int `yaml:"a"`
		}{},
		"minimum": &struct {
			A int `yaml:"a" form:"number" min:"x"`
		}{},
		"unlimited": &struct {
			A int `yaml:"a" form:"number" min:"1" unlimited:"x"`
		}{},
		"default": &struct {
			A int `yaml:"a" form:"number" default:"x"`
		}{},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: accepted", name)
				}
			}()
			testLanguage().SetDefaults(into)
		}()
	}
}
