package artifact

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestQuery(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	h := put(t, s, mine(), "one\ntwo\nERROR three\nfour\nfive\n", "warn\nerror last").Handle()
	both := []string{Stdout, Stderr}
	for _, tt := range []struct {
		name  string
		q     Query
		want  Answer
		texts []string
	}{
		{
			"both streams",
			Query{Terms: []string{"error"}, Excerpts: 10, Context: 1},
			Answer{Lines: 7, Bytes: 45, Streams: both, Match: Matched},
			[]string{"stdout 2-4 two|ERROR three|four", "stderr 1-2 warn|error last"},
		},
		{
			"no context, one excerpt",
			Query{Terms: []string{"error"}, Excerpts: 1},
			Answer{Lines: 7, Bytes: 45, Streams: both, Match: Matched},
			[]string{"stdout 3-3 ERROR three"},
		},
		{
			"one stream",
			Query{Terms: []string{"error"}, Excerpts: 10, Stream: Stderr},
			Answer{Lines: 2, Bytes: 15, Streams: both[1:], Match: Matched},
			[]string{"stderr 2-2 error last"},
		},
		{
			"no match",
			Query{Terms: []string{"nothing"}, Excerpts: 2},
			Answer{Lines: 7, Bytes: 45, Streams: both, Match: NoMatch},
			[]string{"stdout 1-2 one|two fallback"},
		},
		{
			"no terms",
			Query{Terms: []string{""}, Excerpts: 1, Stream: Stderr},
			Answer{Lines: 2, Bytes: 15, Streams: both[1:], Match: NoMatch},
			[]string{"stderr 1-1 warn fallback"},
		},
		{
			"lines",
			Query{Range: &Range{Stdout, 2, 3}},
			Answer{Lines: 5, Bytes: 30, Streams: both[:1], Match: LineRead},
			[]string{"stdout 2-3 two|ERROR three"},
		},
		{
			"lines beyond the end",
			Query{Range: &Range{Stderr, 2, 1 << 40}},
			Answer{Lines: 2, Bytes: 15, Streams: both[1:], Match: LineRead},
			[]string{"stderr 2-2 error last"},
		},
		{"no such lines", Query{Range: &Range{Stderr, 3, 4}}, Answer{Lines: 2, Bytes: 15, Streams: both[1:], Match: LineRead}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.q.Reader, tt.q.Handle = ada, h
			a, err := s.Query(t.Context(), tt.q)
			if err != nil {
				t.Fatal(err)
			}
			if a.Lines != tt.want.Lines || a.Bytes != tt.want.Bytes || !slices.Equal(a.Streams, tt.want.Streams) || a.Match != tt.want.Match {
				t.Errorf("%+v", a)
			}
			var texts []string
			for _, x := range a.Excerpts {
				texts = append(texts, short(x))
			}
			if !slices.Equal(texts, tt.texts) || a.Excerpts == nil {
				t.Errorf("%q, want %q", texts, tt.texts)
			}
		})
	}
	if _, err := s.Query(t.Context(), Query{Reader: ada, Handle: h, Stream: "stdin"}); err == nil {
		t.Error("a stream that does not exist was accepted")
	}
}

// short formats an excerpt on one line.
func short(x Excerpt) string {
	out := x.Source + " " + string('0'+byte(x.LineStart)) + "-" + string('0'+byte(x.LineEnd)) + " " + strings.ReplaceAll(x.Content, "\n", "|")
	if x.Fallback {
		out += " fallback"
	}
	return out
}

// TestLongRange: a range that is too long is cut at the end, and the answer says so.
func TestLongRange(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	h := put(t, s, mine(), numbered(100_000, 64), "").Handle()
	a, err := s.Query(t.Context(), Query{Reader: ada, Handle: h, Range: &Range{Stdout, 5, 100_000}})
	if err != nil || !a.Truncated || len(a.Excerpts) != 1 {
		t.Fatalf("%v, %v", a, err)
	}
	x := a.Excerpts[0]
	if n := int64(strings.Count(x.Content, "\n")) + 1; x.LineStart != 5 || x.LineEnd != 4+n || len(x.Content) < maxText || len(x.Content) > maxText+1000 {
		t.Errorf("lines %d to %d, %d of them, %d bytes", x.LineStart, x.LineEnd, n, len(x.Content))
	}
}

// TestReaders: only its principal with access to its repository, and the store's owner, can read or list an artifact.
func TestReaders(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	h := put(t, s, mine(), "x", "").Handle()
	for _, tt := range []struct {
		name string
		r    Reader
		may  bool
	}{
		{"its principal", ada, true},
		{"its principal, with every repository", Reader{Principal: "user:ada"}, true},
		{"its principal, with another repository", Reader{Principal: "user:ada", Repos: []string{"other"}}, false},
		{"a repository with the same prefix in handles", Reader{Principal: "user:ada", Repos: []string{"my_repo"}}, false},
		{"its principal, with no repository", Reader{Principal: "user:ada", Repos: []string{}}, false},
		{"another principal", Reader{Principal: "user:eve", Repos: []string{"my.repo"}}, false},
		{"nobody", Reader{}, false},
		{"the store's owner", Reader{Owner: true}, true},
	} {
		_, err := s.Query(t.Context(), Query{Reader: tt.r, Handle: h, Range: &Range{Stdout, 1, 1}})
		list, lerr := s.List(tt.r, 10)
		_, _, cerr := content(s, tt.r, h)
		if tt.may && (err != nil || lerr != nil || cerr != nil || len(list) != 1) ||
			!tt.may && (!errors.Is(err, ErrNotFound) || lerr != nil || !errors.Is(cerr, ErrNotFound) || len(list) != 0) {
			t.Errorf("%s: %v, %v, %d listed, %v", tt.name, err, cerr, len(list), lerr)
		}
	}
}

// TestHandles: a text that is not a handle is not looked up.
func TestHandles(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	h := put(t, s, mine(), "x", "").Handle()
	base := filepath.Join(dir, dirName)
	link := h[:len(h)-4] + "0000"
	if err := os.Symlink(h, filepath.Join(base, link)); err != nil {
		t.Fatal(err)
	}
	file := h[:len(h)-4] + "1111"
	if err := os.WriteFile(filepath.Join(base, file), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		"", ".", "..", "/", h + "/", "./" + h, "../" + dirName + "/" + h, h + "\x00", h + "\n", strings.ToUpper(h), h[:len(h)-1], h + "0",
		"runtime-" + strings.Repeat("x", 300) + h[len("runtime-"):], quotaName, tempPrefix + h, link, file,
		"runtime-../../etc-1-0123456789abcdef", "runtime-x-99999999999999999999-0123456789abcdef",
	} {
		if _, err := s.Query(t.Context(), Query{Reader: Reader{Owner: true}, Handle: bad}); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func zipped(texts ...string) []byte {
	var b bytes.Buffer
	for _, text := range texts {
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(text))
		_ = w.Close()
	}
	return b.Bytes()
}

// TestCorrupt: damage is detected, by queries and by copies. TestParse has what is wrong with manifests, TestMemberRefuses with streams.
func TestCorrupt(t *testing.T) {
	text := strings.Repeat("text ", 1000)
	edit := func(name string, change func([]byte) []byte) func(dir string) error {
		return func(dir string) error {
			p := filepath.Join(dir, name)
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			return os.WriteFile(p, change(b), 0o600)
		}
	}
	replace := func(from, to string) func([]byte) []byte {
		return func(b []byte) []byte {
			if !bytes.Contains(b, []byte(from)) {
				t.Errorf("no %s in %s", from, b)
			}
			return bytes.Replace(b, []byte(from), []byte(to), 1)
		}
	}
	to := func(b []byte) func([]byte) []byte { return func([]byte) []byte { return b } }
	remove := func(name string) func(string) error {
		return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
	}
	link := func(name string) func(string) error {
		return func(dir string) error {
			p := filepath.Join(dir, name)
			if err := os.Rename(p, p+"2"); err != nil {
				return err
			}
			return os.Symlink(name+"2", p)
		}
	}
	for name, damage := range map[string]func(string) error{
		"manifest is not JSON": edit(manifestName, replace("{", "[")),
		"size larger":          edit(manifestName, replace(`"stdoutBytes":5000`, `"stdoutBytes":5001`)),
		"manifest gone":        remove(manifestName),
		"manifest is a link":   link(manifestName),
		"stream gone":          remove("stdout.gz"),
		"stream is a link":     link("stdout.gz"),
		"stream is a directory": func(dir string) error {
			return errors.Join(remove("stdout.gz")(dir), os.Mkdir(filepath.Join(dir, "stdout.gz"), 0o700))
		},
		"stream changed":     edit("stdout.gz", to(zipped(strings.Replace(text, "text", "test", 1)))),
		"stream longer":      edit("stdout.gz", to(zipped(text+"x"))),
		"stream is a bomb":   edit("stdout.gz", to(zipped(strings.Repeat("\x00", 8<<20)))),
		"stream bit flipped": edit("stdout.gz", func(b []byte) []byte { b[len(b)-6] ^= 1; return b }),
		"the other stream": func(dir string) error {
			return os.Rename(filepath.Join(dir, "stderr.gz"), filepath.Join(dir, "stdout.gz"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openStore(t, dir, Options{})
			h := put(t, s, mine(), text, "").Handle()
			if _, err := s.Query(t.Context(), Query{Reader: ada, Handle: h, Terms: []string{"text"}, Excerpts: 1}); err != nil {
				t.Fatal(err)
			}
			if err := damage(filepath.Join(dir, dirName, h)); err != nil {
				t.Fatal(err)
			}
			a, err := s.Query(t.Context(), Query{Reader: ada, Handle: h, Terms: []string{"text"}, Excerpts: 1})
			if a != nil || !errors.Is(err, ErrCorrupt) {
				t.Errorf("query: %+v, %v", a, err)
			}
			if got, _, err := content(s, ada, h); got != "" || !errors.Is(err, ErrCorrupt) {
				t.Errorf("copy: %d bytes, %v", len(got), err)
			}
		})
	}
}

// TestPowerCut: an artifact whose manifest is empty after a power cut does not exist.
func TestPowerCut(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	h := put(t, s, mine(), "x", "").Handle()
	if err := os.Truncate(filepath.Join(dir, dirName, h, manifestName), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Query(t.Context(), Query{Reader: ada, Handle: h}); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

// TestRemovedWhileRead: reading an artifact that is being removed returns ErrNotFound, never ErrCorrupt.
func TestRemovedWhileRead(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	for range 100 {
		h := put(t, s, mine(), "x", "").Handle()
		removed := make(chan error)
		go func() { // as an eviction does it
			path, gone := filepath.Join(dir, dirName, h), filepath.Join(dir, dirName, gonePrefix+h)
			removed <- errors.Join(os.Rename(path, gone), os.RemoveAll(gone))
		}()
		for {
			_, _, err := content(s, ada, h)
			if errors.Is(err, ErrNotFound) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := <-removed; err != nil {
			t.Fatal(err)
		}
	}
}

// TestCopyRefuses: each way to read an artifact refuses another principal, a stream that does not exist, and damage.
func TestCopyRefuses(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, Options{})
	h := put(t, s, mine(), "one\ntwo\n", "").Handle()
	other := Reader{Principal: "user:eve", Repos: []string{"my.repo"}}
	var b bytes.Buffer
	read := map[string]func(r Reader) error{
		"Copy":      func(r Reader) error { return s.Copy(r, h, &b, nil) },
		"CopyLines": func(r Reader) error { return s.CopyLines(r, h, Range{Stdout, 1, 1}, &b) },
		"Stream":    func(r Reader) error { return s.Stream(t.Context(), r, h, Stdout, &b) },
		"Find":      func(r Reader) error { _, err := s.Find(t.Context(), r, h); return err },
	}
	for name, do := range read {
		if err := do(other); !errors.Is(err, ErrNotFound) || b.Len() > 0 {
			t.Errorf("%s: %v, %q", name, err, b.String())
		}
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Find(canceled, ada, h); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := s.Stream(t.Context(), ada, h, "stdin", &b); err == nil || b.Len() > 0 {
		t.Errorf("stdin: %v, %q", err, b.String())
	}
	damage(t, filepath.Join(dir, dirName, h, streamFile(Stdout)))
	for _, name := range []string{"Copy", "CopyLines"} {
		if err := read[name](ada); !errors.Is(err, ErrCorrupt) || b.Len() > 0 {
			t.Errorf("%s of a damaged stream: %v, %q", name, err, b.String())
		}
	}
}

// TestListLimit: List returns the newest artifacts, and not more than the limit.
func TestListLimit(t *testing.T) {
	c := newClock()
	s := openStore(t, t.TempDir(), Options{Now: c.now})
	var handles []string
	for range 5 {
		c.advance(time.Second)
		handles = append(handles, put(t, s, mine(), "x", "").Handle())
	}
	list, err := s.List(ada, 2)
	if err != nil || len(list) != 2 || list[0].ArtifactID != handles[4] || list[1].ArtifactID != handles[3] {
		t.Errorf("%+v, %v", list, err)
	}
	s.Close()
	if list, err := s.List(ada, 2); err != nil || len(list) != 0 {
		t.Errorf("after Close: %+v, %v", list, err)
	}
}
