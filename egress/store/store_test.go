package store

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // a digest of registries
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"
)

const plenty = 1 << 30

func open(t *testing.T, dir string, max int64) *Store {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	s, err := Open(f, max)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func sumOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func put(s *Store, key, content string) error {
	w := s.Create()
	defer w.Abort()
	_, _ = io.WriteString(w, content) // Commit has the error
	return w.Commit(Entry{Key: key, Kind: "npm", Host: "a.example.org", Name: key, SHA256: sumOf(content), Type: "text/plain", Checked: 1})
}

func mustPut(t *testing.T, s *Store, key, content string) {
	t.Helper()
	if err := put(s, key, content); err != nil {
		t.Fatal(err)
	}
}

// get returns the verified content, "" if there is none.
func get(t *testing.T, s *Store, key string) string {
	t.Helper()
	e, f, ok := s.Get(key)
	if !ok {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(Kept(f, e))
	if errors.Is(err, ErrDigest) {
		s.Drop(e.SHA256)
		return ""
	}
	if err != nil || int64(len(b)) != e.Size || e.Type != "text/plain" || e.Checked == 0 {
		t.Errorf("%s: %q of %+v, %v", key, b, e, err)
	}
	return string(b)
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// TestStore: what is put is found again, also by the next process, once for each content.
func TestStore(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, plenty)
	if got := get(t, s, "one"); got != "" {
		t.Errorf("%q", got)
	}
	mustPut(t, s, "one", "a content")
	mustPut(t, s, "two", "a content")
	mustPut(t, s, "changed", "the first")
	mustPut(t, s, "changed", "the second")
	mustPut(t, s, "empty", "")
	s.Renew("one", time.Now())
	s.Renew("none", time.Now())
	for range 2 {
		for key, want := range map[string]string{"one": "a content", "two": "a content", "changed": "the second"} {
			if got := get(t, s, key); got != want {
				t.Errorf("%s: %q, want %q", key, got, want)
			}
		}
		if _, f, ok := s.Get("empty"); !ok {
			t.Error("an empty file is not there")
		} else {
			f.Close()
		}
		if n := len(names(t, dir)); n != 4 || s.size != 2*BlockSize || len(s.files) != 3 {
			t.Errorf("%d files, %d bytes, %d contents", n, s.size, len(s.files))
		}
		s = open(t, dir, plenty)
	}
	s.Drop(sumOf("a content"))
	s.Drop("none")
	if get(t, s, "one") != "" || get(t, s, "two") != "" || get(t, open(t, dir, plenty), "one") != "" {
		t.Error("a content that was dropped is there")
	}
}

// TestNotKept: a file is not there before it is committed, and an aborted one leaves nothing.
func TestNotKept(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, plenty)
	w := s.Create()
	_, _ = io.WriteString(w, "half")
	if get(t, s, "one") != "" || s.size == 0 {
		t.Error("a file is there before it is committed, or takes no space")
	}
	w.Abort()
	w.Abort()
	if n := names(t, dir); len(n) != 1 || s.size != 0 {
		t.Errorf("%q, %d bytes", n, s.size)
	}
	w = s.Create()
	_, _ = io.WriteString(w, "half") // and the process ends
	if open(t, dir, plenty); len(names(t, dir)) != 1 {
		t.Errorf("%q", names(t, dir))
	}
	w = s.Create()
	if err := w.Commit(Entry{Key: strings.Repeat("x", MaxLine), SHA256: sumOf("")}); err == nil {
		t.Error("a long entry is kept")
	}
	w = s.Create()
	if err := w.Commit(Entry{Key: "x", SHA256: "../x"}); err == nil {
		t.Error("a file is kept under another name than its digest")
	}
}

// TestBound: the store never has more than its bound, and removes what was used least recently.
func TestBound(t *testing.T) {
	dir := t.TempDir()
	const most = 8 * BlockSize
	s := open(t, dir, most)
	for n := range 8 {
		mustPut(t, s, fmt.Sprint(n), fmt.Sprint("content ", n))
	}
	if get(t, s, "0") == "" {
		t.Fatal("the first is gone")
	}
	mustPut(t, s, "8", "content 8")
	if get(t, s, "1") != "" || get(t, s, "0") == "" || get(t, s, "8") == "" {
		t.Error("not the least recently used one was removed")
	}
	if err := put(s, "large", strings.Repeat("x", most+1)); !errors.Is(err, ErrFull) {
		t.Errorf("%v, want %v", err, ErrFull)
	}
	if s.size > most || get(t, s, "8") == "" {
		t.Errorf("%d bytes, or a file that is too large removed others", s.size)
	}
	var disk int64
	for _, name := range names(t, dir) {
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && name != Journal {
			disk += rounded(st.Size())
		}
	}
	if disk != s.size {
		t.Errorf("%d bytes in files, %d counted", disk, s.size)
	}
	// What is being written counts, and is not evicted.
	s = open(t, t.TempDir(), most)
	w := s.Create()
	defer w.Abort()
	if _, _ = w.Write(make([]byte, most)); w.err != nil {
		t.Fatal(w.err)
	}
	if err := put(s, "x", "x"); !errors.Is(err, ErrFull) {
		t.Errorf("%v, want %v", err, ErrFull)
	}
	// A lower bound applies to what is there, and the time of the last use is known to the next process.
	dir = t.TempDir()
	s = open(t, dir, most)
	for n := range 4 {
		mustPut(t, s, fmt.Sprint(n), fmt.Sprint("content ", n))
		at := time.Now().Add(time.Duration(n-10) * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, sumOf(fmt.Sprint("content ", n))), at, at); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, dir, most)
	if get(t, s, "0") == "" { // the oldest one
		t.Fatal("it is gone")
	}
	s = open(t, dir, 2*BlockSize)
	if s.size != 2*BlockSize || get(t, s, "0") == "" || get(t, s, "3") == "" {
		t.Errorf("%d bytes, %q", s.size, names(t, dir))
	}
}

// TestDamaged: nothing in the directory is trusted.
func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, plenty)
	for _, key := range []string{"same size", "shorter", "link", "fifo", "removed", "right"} {
		mustPut(t, s, key, "content of "+key)
	}
	at := func(key string) string { return filepath.Join(dir, sumOf("content of "+key)) }
	damage := func() {
		for _, key := range []string{"link", "fifo", "removed"} {
			_ = os.Remove(at(key))
		}
		secret := filepath.Join(t.TempDir(), "secret")
		err := errors.Join(os.WriteFile(at("same size"), []byte("content of SAME SIZE"), 0o600), os.WriteFile(at("shorter"), []byte("x"), 0o600),
			os.WriteFile(secret, []byte("content of link"), 0o600), os.Symlink(secret, at("link")), unix.Mkfifo(at("fifo"), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	check := func(s *Store) {
		t.Helper()
		for _, key := range []string{"same size", "shorter", "link", "fifo", "removed"} {
			if got := get(t, s, key); got != "" {
				t.Errorf("%s: %q", key, got)
			}
		}
		if got := get(t, s, "right"); got != "content of right" {
			t.Errorf("%q", got)
		}
	}
	damage()
	if _, _, ok := s.Get("shorter"); ok {
		t.Error("a file of another size is returned")
	}
	check(s)
	for _, key := range []string{"same size", "shorter", "link", "fifo", "removed"} {
		mustPut(t, s, key, "content of "+key)
	}
	damage()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "stray"), nil, 0o600), os.Mkdir(filepath.Join(dir, "directory"), 0o700)); err != nil {
		t.Fatal(err)
	}
	check(open(t, dir, plenty))
	if got := names(t, dir); len(got) != 3 { // with the directory
		t.Errorf("%q", got)
	}
}

// TestEntries: lines that are no entries are skipped, and the last one of a key applies.
func TestEntries(t *testing.T) {
	line := func(key, sha string) string { return string(encode(&Entry{Key: key, SHA256: sha, Size: 1})) }
	a, b := sumOf("a"), sumOf("b")
	for name, tt := range map[string]struct {
		text string
		want map[string]string
	}{
		"nothing":                  {"", nil},
		"the last one":             {line("k", a) + line("k", b), map[string]string{"k": b}},
		"removed":                  {line("k", a) + line("k", ""), nil},
		"not written as a whole":   {line("k", a) + line("l", b)[:20], map[string]string{"k": a}},
		"no JSON":                  {"{\n" + line("k", a) + "\x00\x01\n[]\n", map[string]string{"k": a}},
		"a long line":              {strings.Repeat("x", 3*MaxLine) + "\n" + line("k", a), map[string]string{"k": a}},
		"a path":                   {line("k", "../../etc/passwd") + line("l", strings.ToUpper(a)), nil},
		"a size below zero":        {strings.Replace(line("k", a), `"size":1`, `"size":-1`, 1), nil},
		"nested beyond all bounds": {strings.Repeat("[", 4000) + "\n" + line("k", a), map[string]string{"k": a}},
	} {
		got := ReadEntries(strings.NewReader(tt.text))
		for key, want := range tt.want {
			if got[key] == nil || got[key].SHA256 != want {
				t.Errorf("%s: %v, want %v", name, got, tt.want)
			}
		}
		if len(got) != len(tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// TestJournal: the file of entries does not grow with uses, and a store that cannot write to it works.
func TestJournal(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, plenty)
	mustPut(t, s, "one", "content")
	for range 20_000 {
		s.Renew("one", time.Now())
	}
	if st, err := os.Stat(filepath.Join(dir, Journal)); err != nil || st.Size() > 2<<20 || st.Size() != s.written {
		t.Errorf("%d bytes, %d counted, %v", st.Size(), s.written, err)
	}
	if s.lines != lengthOf(s.entries["one"]) {
		t.Errorf("%d bytes counted, want %d", s.lines, lengthOf(s.entries["one"]))
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	mustPut(t, s, "two", "content 2")
	if get(t, s, "two") == "" {
		t.Error("nothing is kept without a journal")
	}
}

// TestConcurrent: jobs use the store at once.
func TestConcurrent(t *testing.T) {
	s := open(t, t.TempDir(), 16*BlockSize)
	var work sync.WaitGroup
	for n := range 8 {
		work.Go(func() {
			for i := range 100 {
				key := fmt.Sprint((n + i) % 24)
				if err := put(s, key, "content of "+key); err != nil && !errors.Is(err, ErrFull) {
					t.Error(err)
				}
				if got := get(t, s, key); got != "" && got != "content of "+key {
					t.Errorf("%s: %q", key, got)
				}
			}
		})
	}
	work.Wait()
	if s.size > 16*BlockSize || s.size != int64(len(s.files))*BlockSize {
		t.Errorf("%d bytes of %d files", s.size, len(s.files))
	}
}

// TestCheck: the end of a content is returned only if all of it is right.
func TestCheck(t *testing.T) {
	content := strings.Repeat("0123456789", 10_000)
	short := sha1.Sum([]byte(content))
	for _, size := range []int{0, 1, chunk - 1, chunk, chunk + 1, len(content)} {
		part := content[:size]
		for name, from := range map[string]io.Reader{
			"at once": strings.NewReader(part), "by bytes": iotest.OneByteReader(strings.NewReader(part)), "with the end": iotest.DataErrReader(strings.NewReader(part)),
		} {
			sum, _ := hex.DecodeString(sumOf(part))
			done := 0
			c := NewCheck(from, nil, string(sum))
			c.Done = func() error { done++; return nil }
			if b, err := io.ReadAll(c); err != nil || string(b) != part || done != 1 || c.SHA256() != sumOf(part) {
				t.Errorf("%d %s: %d bytes, %v, done %d times", size, name, len(b), err, done)
			}
			wrong := NewCheck(strings.NewReader(part), sha1.New(), string(short[:]))
			if b, err := io.ReadAll(wrong); size < len(content) && (!errors.Is(err, ErrDigest) || len(b) > 0 && len(b) == size) {
				t.Errorf("%d: %d bytes of a wrong content, %v", size, len(b), err)
			} else if size == len(content) && err != nil {
				t.Error(err)
			}
		}
	}
	failing := io.MultiReader(strings.NewReader("some"), iotest.ErrReader(unix.ECONNRESET))
	if b, err := io.ReadAll(NewCheck(failing, nil, "")); !errors.Is(err, unix.ECONNRESET) || len(b) > 0 {
		t.Errorf("%q, %v", b, err)
	}
	c := NewCheck(bytes.NewReader(nil), nil, "")
	c.Done = func() error { return unix.ENOSPC }
	if _, err := io.ReadAll(c); !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
}

// FuzzEntries: no journal makes the reader fail, and each entry that is read is found again.
func FuzzEntries(f *testing.F) {
	f.Add(string(encode(&Entry{Key: "k", SHA256: sumOf("a"), Size: 1})))
	f.Fuzz(func(t *testing.T, text string) {
		for key, e := range ReadEntries(strings.NewReader(text)) {
			if e.Key != key || !IsContent(e.SHA256) || e.Size < 0 {
				t.Fatalf("%q: %+v", key, e)
			}
		}
	})
}
