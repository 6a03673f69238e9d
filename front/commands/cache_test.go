package commands

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	kept "corral/egress/store"
)

// fill makes the store of a user, whose files were used n hours ago.
func fill(t *testing.T, path string, contents ...string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := kept.Open(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for n, content := range contents {
		w := s.Create()
		_, _ = io.WriteString(w, content)
		if err := w.Commit(kept.Entry{Key: " https://a.example.org/" + content, Kind: "npm", Host: "a.example.org", Name: content, SHA256: name(content)}); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-time.Duration(n+1) * time.Hour)
		if err := os.Chtimes(filepath.Join(path, name(content)), at, at); err != nil {
			t.Fatal(err)
		}
	}
}

// plain opens a directory, which stands for a volume.
func plain(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	return os.NewFile(uintptr(fd), name), err
}

func name(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// captured returns what a function prints.
func captured(t *testing.T, f func() error) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	err = f()
	os.Stdout = stdout
	w.Close()
	out, _ := io.ReadAll(r)
	r.Close()
	if err != nil {
		t.Error(err)
	}
	return string(out)
}

// TestListCache: what is kept is listed for each user, and what is in a directory beside that is neither followed nor listed.
func TestListCache(t *testing.T) {
	dir := t.TempDir()
	fill(t, filepath.Join(dir, "54320.1"), "one", "two\x1b[2J\u202e")
	fill(t, filepath.Join(dir, "54321.1"), "three")
	secret := filepath.Join(t.TempDir(), "secret")
	bad := filepath.Join(dir, "54320.1")
	for _, err := range []error{
		os.WriteFile(secret, []byte(`{"key":"k","name":"secret","sha256":"`+name("one")+`"}`+"\n"), 0o600),
		os.Symlink(secret, filepath.Join(bad, name("link"))), unix.Mkfifo(filepath.Join(bad, name("fifo")), 0o600),
		os.WriteFile(filepath.Join(bad, "new-x"), make([]byte, 100), 0o600), os.WriteFile(filepath.Join(dir, "stray"), nil, 0o600),
		os.Mkdir(filepath.Join(dir, "54322.1"), 0o700), os.Symlink(secret, filepath.Join(dir, "54322.1", kept.Journal)),
		os.WriteFile(filepath.Join(dir, "54322.1", name("one")), nil, 0o600),
		os.Mkdir(filepath.Join(dir, "54323.1"), 0o700), unix.Mkfifo(filepath.Join(dir, "54323.1", kept.Journal), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	list := func(o *cacheOptions) string {
		t.Helper()
		stores, err := openStores(dir, plain)
		if err == nil {
			stores, err = o.chosen(stores)
		}
		if err != nil {
			t.Fatal(err)
		}
		return captured(t, func() error { return o.printList(stores) })
	}
	out := list(&cacheOptions{})
	for _, want := range []string{"USER", "54320  npm   a.example.org  one ", "1h", `two\x1b[2J\u202e`, "54320: 2 files, ", "54321: 1 file, 5 bytes", "54322: 1 file, 0 bytes", "54323: 0 files"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	if strings.Contains(out, "secret") || strings.ContainsAny(out, "\x1b\u202e") {
		t.Errorf("%q", out)
	}
	var rows []cacheRow
	if err := json.Unmarshal([]byte(list(&cacheOptions{json: true, user: "54320"})), &rows); err != nil || len(rows) != 2 || rows[0].Name != "one" || rows[0].Size != 3 || rows[0].SHA256 != name("one") {
		t.Errorf("%+v, %v", rows, err)
	}
	if _, err := (&cacheOptions{user: "no such user"}).chosen(nil); err == nil {
		t.Error("a user that does not exist is accepted")
	}
	if stores, err := openStores(filepath.Join(dir, "none"), plain); err != nil || stores != nil {
		t.Errorf("%v, %v", stores, err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "54324.1")); err != nil {
		t.Fatal(err)
	}
	if _, err := openStores(dir, plain); err == nil {
		t.Error("a link in place of a user's directory is followed")
	}
}

// TestPruneCache: what the options say is removed, what was used least recently first, and the process that keeps the rest finds out.
func TestPruneCache(t *testing.T) {
	contents := []string{"a", "bb", "ccc", "dddd"} // used 1 to 4 hours ago
	for what, tt := range map[string]struct {
		o    cacheOptions
		left string
	}{
		"all":                     {cacheOptions{to: -1}, ""},
		"old":                     {cacheOptions{to: -1, older: 150 * time.Minute}, "a bb"},
		"until some are left":     {cacheOptions{to: 6}, "a bb ccc"},
		"until nothing is left":   {cacheOptions{to: 0}, ""},
		"old, until some is left": {cacheOptions{to: 4, older: 210 * time.Minute}, "a bb ccc"},
		"nothing":                 {cacheOptions{to: 100}, "a bb ccc dddd"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "54320.1")
		fill(t, path, contents...)
		victim := filepath.Join(t.TempDir(), "victim")
		if err := os.WriteFile(victim, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(victim, filepath.Join(path, name("link"))); err != nil {
			t.Fatal(err)
		}
		stores, err := openStores(dir, plain)
		if err != nil {
			t.Fatal(err)
		}
		removed, err := pruneCaches(stores, &tt.o, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, content := range contents {
			if _, err := os.Stat(filepath.Join(path, name(content))); err == nil {
				left = append(left, content)
			}
		}
		gone := len(contents) - len(left)
		if what == "all" {
			gone++ // the link
		}
		if got := strings.Join(left, " "); got != tt.left || len(removed) != 1 || len(removed[0].files) != gone {
			t.Errorf("%s: left %q, removed %+v, want %q left", what, got, removed, tt.left)
		}
		if _, err := os.Stat(victim); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		out := captured(t, func() error { return (&cacheOptions{}).printRemoved(removed) })
		if want := "54320: removed " + countFiles(gone) + ", "; !strings.HasPrefix(out, want) {
			t.Errorf("%s: %q, want %q", what, out, want)
		}
		out = captured(t, func() error { return (&cacheOptions{json: true}).printRemoved(removed) })
		if !bytes.Contains([]byte(out), []byte(`"removedFiles": `)) {
			t.Errorf("%s: %q", what, out)
		}
	}
}

// TestRestOfCache: what a process left that was taken over is counted and removed, too, whatever its name, size and time.
func TestRestOfCache(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "54320.1")
	fill(t, path, "one", "two")
	ahead := time.Now().Add(1000 * time.Hour)
	huge := []string{"new-\x1b[2J", name("1"), name("2"), name("3"), kept.Journal}
	for _, one := range huge {
		at := filepath.Join(path, one)
		if err := os.WriteFile(at, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(at, 1<<42); err != nil {
			t.Skipf("no files of 4 TiB: %v", err)
		}
		_ = os.Truncate(at, 1<<62) // where the file system has such files
		_ = os.Chtimes(at, ahead, ahead)
	}
	stores, err := openStores(dir, plain)
	if err != nil {
		t.Fatal(err)
	}
	out := captured(t, func() error { return (&cacheOptions{}).printList(stores) })
	if !strings.Contains(out, "54320: 5 files, ") || !strings.Contains(out, "54320: also 2 files without an entry, ") || strings.Contains(out, "-") {
		t.Error(out)
	}
	if removed, err := pruneCaches(stores, &cacheOptions{to: 1 << 20}, time.Now()); err != nil || len(removed[0].files) != 5 {
		t.Errorf("to a size: %v, %v", removed, err)
	}
	if _, err := pruneCaches(stores, &cacheOptions{to: -1}, time.Now()); err != nil {
		t.Error(err)
	}
	if names, err := os.ReadDir(path); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
	if err := os.Mkdir(filepath.Join(path, "\x1b[2J"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := stores[0].remove("\x1b[2J"); err == nil || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("%v", err)
	}
}

// TestParseCache: what command lines are accepted.
func TestParseCache(t *testing.T) {
	for line, want := range map[string]cacheOptions{
		"list --json":                       {verb: "list", json: true},
		"list --user 7 --state /x":          {verb: "list", user: "7", state: "/x"},
		"prune":                             {verb: "prune", to: -1},
		"prune --older-than 30d --to 5GiB":  {verb: "prune", older: 720 * time.Hour, to: 5 << 30},
		"prune --older-than 90m --to 0":     {verb: "prune", older: 90 * time.Minute},
		"show":                              {},
		"":                                  {},
		"list x":                            {},
		"list --older-than 1d":              {},
		"prune --older-than 0d":             {},
		"prune --older-than -1h":            {},
		"prune --older-than 99999999999d":   {},
		"prune --to many":                   {},
		"prune --older-than yesterday --to": {},
	} {
		o := &cacheOptions{to: want.to}
		if want.verb == "prune" && want.to == -1 {
			o.to = -1
		}
		err := o.parse(strings.Fields(line))
		if (err != nil) != (want.verb == "") {
			t.Errorf("%q: %v", line, err)
		}
		if want.state == "" {
			o.state = ""
		}
		if want.verb != "" && *o != want {
			t.Errorf("%q: %+v, want %+v", line, *o, want)
		}
	}
	for age, want := range map[time.Duration]string{0: "0s", 59 * time.Second: "59s", time.Hour: "1h", 49 * time.Hour: "2d", -time.Hour: "0s"} {
		now := time.Now()
		if got := ago(now, now.Add(-age)); got != want {
			t.Errorf("%v: %q, want %q", age, got, want)
		}
	}
}
