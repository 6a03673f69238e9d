package index

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

var testBase = Base{Repo: "/srv/repo", Principal: "alice"}

// openIndex opens an index in a new directory.
func openIndex(t testing.TB, o Options) *Index {
	t.Helper()
	return openIn(t, t.TempDir(), o)
}

func openIn(t testing.TB, dir string, o Options) *Index {
	t.Helper()
	state, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	x, err := Open(state, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// add adds a text.
func add(t testing.TB, x *Index, s Source, text string) Added {
	t.Helper()
	a, err := x.Add(t.Context(), testBase, s, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func find(t testing.TB, x *Index, q Query) *Found {
	t.Helper()
	f, err := x.Search(t.Context(), testBase, q)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// sourcesOf returns the names of the sources that contain a word.
func sourcesOf(t testing.TB, x *Index, text string) []string {
	t.Helper()
	var names []string
	for _, h := range find(t, x, Query{Text: text, Limit: 100}).Hits {
		if !slices.Contains(names, h.Source) {
			names = append(names, h.Source)
		}
	}
	slices.Sort(names)
	return names
}

func stats(t testing.TB, x *Index) Stats {
	t.Helper()
	s, err := x.Stats(t.Context(), testBase)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// filesOf returns the names in the directory of bases, or nil if it does not exist.
func filesOf(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, dirName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// dbOf returns the path of the only database in a state directory.
func dbOf(t testing.TB, dir string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, dirName, "*"+".db"))
	if err != nil || len(all) != 1 {
		t.Fatalf("databases: %v, %v", all, err)
	}
	return all[0]
}

// numbered returns n lines, each with a unique word.
func numbered(prefix string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d has %s%d in it and common words\n", i, prefix, i)
	}
	return b.String()
}

// TestReadsCreateNothing checks that operations that only read create no files.
func TestReadsCreateNothing(t *testing.T) {
	dir := t.TempDir()
	x := openIn(t, dir, Options{})
	if f := find(t, x, Query{Text: "anything"}); !f.Empty || len(f.Hits) > 0 {
		t.Errorf("found %+v", f)
	}
	if s := stats(t, x); s.Sources != 0 || s.Disk != 0 {
		t.Errorf("stats %+v", s)
	}
	if has, err := x.Has(t.Context(), testBase, "a", ""); has || err != nil {
		t.Errorf("has %v, %v", has, err)
	}
	if s, err := x.Purge(t.Context(), testBase); s.Sources != 0 || err != nil {
		t.Errorf("purged %+v, %v", s, err)
	}
	if entries, err := os.ReadDir(dir); len(entries) > 0 || err != nil {
		t.Errorf("made %v, %v", entries, err)
	}
}

// TestNames checks that sources of one label are numbered and coexist, and that a source with a fixed name is replaced.
func TestNames(t *testing.T) {
	x := openIndex(t, Options{})
	for i, want := range []string{"execute:shell#1", "execute:shell#2", "execute:shell#3"} {
		if a := add(t, x, Source{Label: "execute:shell"}, fmt.Sprintf("run alpha%c\n", 'a'+i)); a.Name != want {
			t.Errorf("name %s, want %s", a.Name, want)
		}
	}
	if got := sourcesOf(t, x, "alphaa alphab alphac"); len(got) != 3 {
		t.Errorf("sources %v", got)
	}
	for _, text := range []string{"the first version of notes\n", "the second version of notes\n"} {
		if a := add(t, x, Source{Label: "notes.md", Fixed: true}, text); a.Name != "notes.md" {
			t.Errorf("name %s", a.Name)
		}
	}
	if f := find(t, x, Query{Text: "version", Limit: 10}); len(f.Hits) != 1 || !strings.Contains(f.Hits[0].Text, "second") {
		t.Errorf("a fixed name: %+v", f.Hits)
	}
	if s := stats(t, x); s.Sources != 4 || s.BySource[0].Name != "notes.md" {
		t.Errorf("stats %+v", s)
	}
}

func TestAdded(t *testing.T) {
	x := openIndex(t, Options{})
	text := numbered("word", 100) + "connection_refused connection_refused\n"
	a := add(t, x, Source{Label: "log", Artifact: "art-1", Stream: "stdout"}, text)
	if a.Lines != 101 || a.Bytes != int64(len(text)) || a.Sections < 5 || a.Truncated || len(a.Terms) == 0 || len(a.Terms) > maxTerms {
		t.Errorf("added %+v", a)
	}
	s := stats(t, x)
	if s.Sources != 1 || s.Sections != a.Sections || s.Lines != a.Lines || s.Bytes < a.Bytes || s.Disk == 0 || s.Oldest != s.Newest {
		t.Errorf("stats %+v", s)
	}
	for handle, want := range map[string]bool{"art-1": true, "art-2": false, "": false} {
		if has, err := x.Has(t.Context(), testBase, handle, ""); has != want || err != nil {
			t.Errorf("has %q: %v, %v", handle, has, err)
		}
	}
	for stream, want := range map[string]bool{"stdout": true, "stderr": false} {
		if has, err := x.Has(t.Context(), testBase, "art-1", stream); has != want || err != nil {
			t.Errorf("has %q: %v, %v", stream, has, err)
		}
	}
	h := find(t, x, Query{Text: "word57"}).Hits[0]
	if h.Artifact != "art-1" || h.Stream != "stdout" || h.LineNumber != 58 || h.Line != "line 57 has word57 in it and common words" {
		t.Errorf("hit %+v", h)
	}
	if h.LineNumber < h.LineStart || h.LineNumber > h.LineEnd {
		t.Errorf("line %d of %d to %d", h.LineNumber, h.LineStart, h.LineEnd)
	}
}

func TestRefusedSources(t *testing.T) {
	dir := t.TempDir()
	x := openIn(t, dir, Options{})
	for _, s := range []Source{
		{},
		{Label: strings.Repeat("x", maxName+1)},
		{Label: "two\nlines"},
		{Label: "\xff"},
		{Label: "nul\x00"},
		{Label: "l", Artifact: strings.Repeat("x", maxName+1)},
		{Label: "l", Stream: strings.Repeat("x", maxName+1)},
		{Label: "l", Class: "poetry"},
		{Label: "l", Format: JSON + 1},
	} {
		if a, err := x.Add(t.Context(), testBase, s, strings.NewReader("text\n")); err == nil {
			t.Errorf("%+v was accepted: %+v", s, a)
		}
	}
	if names := filesOf(t, dir); names != nil {
		t.Errorf("created %v", names)
	}
}

func TestOptions(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for _, o := range []Options{{TTL: -1}, {MaxBytes: -1}, {MaxBytes: minMaxBytes - 1}} {
		if _, err := Open(dir, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := Open(file, Options{}); err == nil {
		t.Error("a file was accepted as the state directory")
	}
}

// TestBases checks that principals and repositories have separate bases, even if the concatenation of their names is
// equal.
func TestBases(t *testing.T) {
	dir := t.TempDir()
	x := openIn(t, dir, Options{})
	bases := []Base{{Repo: "/r", Principal: "a"}, {Repo: "/r", Principal: "b"}, {Repo: "/r/a", Principal: ""}, {Repo: "", Principal: "/ra"}, {Repo: "/ra", Principal: ""}, {Repo: "../../etc", Principal: "\x00\n'\""}}
	for i, b := range bases {
		if _, err := x.Add(t.Context(), b, Source{Label: fmt.Sprint("of", i)}, strings.NewReader("secret words\n")); err != nil {
			t.Fatal(err)
		}
	}
	for i, b := range bases {
		f, err := x.Search(t.Context(), b, Query{Text: "secret", Limit: 10})
		if err != nil || len(f.Hits) != 1 || f.Hits[0].Source != fmt.Sprintf("of%d#1", i) {
			t.Errorf("base %d: %+v, %v", i, f, err)
		}
	}
	if n := len(x.open); n > maxOpen+1 {
		t.Errorf("%d bases are open", n)
	}
}

// TestModes checks that only the user can access the files, whatever the umask is.
func TestModes(t *testing.T) {
	dir := t.TempDir()
	defer unix.Umask(unix.Umask(0))
	x := openIn(t, dir, Options{})
	add(t, x, Source{Label: "l"}, numbered("w", 10))
	st, err := os.Stat(filepath.Join(dir, dirName))
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v", st.Mode(), err)
	}
	names := filesOf(t, dir)
	if len(names) < 4 {
		t.Errorf("files %v: the WAL is missing", names)
	}
	for _, name := range names {
		if st, err := os.Stat(filepath.Join(dir, dirName, name)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
}

// TestCancelled checks that after a canceled or failed Add nothing is found, and that its chunks are removed.
func TestCancelled(t *testing.T) {
	broken := errors.New("the stream broke")
	for name, c := range map[string]struct {
		read func(cancel context.CancelFunc) io.Reader
		want error
	}{
		"at once": {func(cancel context.CancelFunc) io.Reader { cancel(); return strings.NewReader("kestrel\n") }, context.Canceled},
		"halfway": {func(cancel context.CancelFunc) io.Reader {
			return io.MultiReader(strings.NewReader(numbered("kestrel", 60_000/RaceScale)), readerFunc(func([]byte) (int, error) {
				cancel()
				return 0, nil
			}))
		}, context.Canceled},
		"broken": {func(context.CancelFunc) io.Reader {
			return io.MultiReader(strings.NewReader(numbered("kestrel", 60_000/RaceScale)), iotest.ErrReader(broken))
		}, broken},
	} {
		t.Run(name, func(t *testing.T) {
			x := openIndex(t, Options{})
			add(t, x, Source{Label: "before"}, "something else\n")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if _, err := x.Add(ctx, testBase, Source{Label: "l"}, c.read(cancel)); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if got := sourcesOf(t, x, "kestrel1 kestrel2 common"); len(got) > 0 {
				t.Errorf("found in %v", got)
			}
			if n := countRows(t, x, "SELECT count(*) FROM found"); n != 1 {
				t.Errorf("%d chunks are left", n)
			}
			if a := add(t, x, Source{Label: "l"}, "kestrel1 again\n"); a.Sections != 1 {
				t.Errorf("added %+v", a)
			}
		})
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// countRows returns the result of a query of the database.
func countRows(t testing.TB, x *Index, query string) (n int) {
	t.Helper()
	err := x.with(t.Context(), testBase, false, func(b *base) error {
		return b.Write.QueryRow(query).Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestClosed(t *testing.T) {
	sandboxtest.Leaks(t)
	x := openIndex(t, Options{})
	add(t, x, Source{Label: "l"}, "kestrel\n")
	for range 2 {
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := x.Add(t.Context(), testBase, Source{Label: "l"}, strings.NewReader("x"))
	_, searchErr := x.Search(t.Context(), testBase, Query{Text: "x"})
	_, purgeErr := x.Purge(t.Context(), testBase)
	for _, err := range []error{err, searchErr, purgeErr} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("error %v", err)
		}
	}
}

// TestReopened checks that sources are found after the index is reopened, and that Close leaves no WAL behind.
func TestReopened(t *testing.T) {
	dir := t.TempDir()
	x := openIn(t, dir, Options{})
	add(t, x, Source{Label: "l"}, "kestrel\n")
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if names := filesOf(t, dir); len(names) != 2 {
		t.Errorf("files %v", names)
	}
	x = openIn(t, dir, Options{})
	if got := sourcesOf(t, x, "kestrel"); !slices.Equal(got, []string{"l#1"}) {
		t.Errorf("found in %v", got)
	}
	if a := add(t, x, Source{Label: "l"}, "kestrel\n"); a.Name != "l#2" {
		t.Errorf("name %s", a.Name)
	}
}
