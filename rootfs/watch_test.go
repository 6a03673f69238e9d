package rootfs

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWatch: each change of what a tree was made from is noticed, also if it was made from a kept copy.
func TestWatch(t *testing.T) {
	host := settledHost(t)
	etc := filepath.Join(host, "etc")
	first, second := NewWatch(), NewWatch()
	defer first.Close()
	e := quick()
	must(t, Options{Host: host, Etc: e, Watch: first})
	must(t, Options{Host: host, Etc: e, Watch: second})
	for _, tt := range []struct {
		name   string
		change func() error
	}{
		{"file written", func() error { return os.WriteFile(etc+"/services", []byte("smtp"), 0o644) }},
		{"file closed", func() error { return os.Chmod(etc+"/services", 0o600) }},
		{"file added", func() error { return os.WriteFile(etc+"/protocols", []byte("tcp"), 0o644) }},
		{"file removed", func() error { return os.Remove(etc + "/ssl/certs/a.pem") }},
		{"file moved", func() error { return os.Rename(etc+"/protocols", etc+"/magic") }},
		{"link replaced", func() error {
			return replace(etc+"/ssl/certs/b.pem", func(p string) error { return os.Symlink("c.pem", p) })
		}},
		{"another opened", func() error { return os.Chmod(etc+"/ssl", 0o711) }},
	} {
		var before [2]uint64
		for i, w := range []*Watch{first, second} {
			n, ok := w.Changes()
			if again, _ := w.Changes(); !ok || again != n {
				t.Errorf("%s: noticed before: %d, %d, %v", tt.name, n, again, ok)
			}
			before[i] = n
		}
		if err := tt.change(); err != nil {
			t.Fatal(err)
		}
		for i, w := range []*Watch{first, second} {
			if now, ok := w.Changes(); !ok || now == before[i] {
				t.Errorf("%s: not noticed", tt.name)
			}
			must(t, Options{Host: host, Etc: e, Watch: w})
		}
	}
	second.Close()
	if _, ok := second.Changes(); ok {
		t.Error("a closed watch answers")
	}
	var none *Watch
	none.Close()
	if _, ok := none.Changes(); ok {
		t.Error("a nil Watch answers")
	}
}

// TestUpdate: what was written of one tree becomes another, whatever changes in kind; a file that is open stays as it was.
func TestUpdate(t *testing.T) {
	file := func(p, data string) Entry { return Entry{Path: p, Mode: 0o644, Data: []byte(data)} }
	dir := func(p string) Entry { return Entry{Path: p, Mode: os.ModeDir | 0o755} }
	link := func(p, to string) Entry { return Entry{Path: p, Mode: os.ModeSymlink | 0o777, Link: to} }
	trees := []Tree{
		{Entries: []Entry{dir("/etc"), file("/etc/a", "1"), dir("/etc/d"), dir("/etc/d/e"), file("/etc/d/e/f", "x"), link("/etc/l", "a")}},
		{Entries: []Entry{dir("/etc"), file("/etc/a", "2"), file("/etc/d", "file"), link("/etc/l", "d"), dir("/etc/n"), file("/etc/n/x", "")}},
		{Entries: []Entry{dir("/etc"), dir("/etc/d"), file("/etc/d/e", "file"), dir("/etc/l"), file("/etc/l/x", "y"), link("/etc/n", "l")}},
		{Entries: []Entry{dir("/etc"), {Path: "/etc/d", Mode: os.ModeDir | 0o711}, {Path: "/etc/l", Mode: 0o755, Data: []byte("z")}}},
	}
	root := tempDir(t)
	d, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var old Tree
	for i := range 3 * len(trees) {
		now := trees[(i*i+i)/2%len(trees)]
		if err := now.Update(int(d.Fd()), old); err != nil {
			t.Fatal(i, err)
		}
		want := tempDir(t)
		w, err := os.Open(want)
		if err != nil {
			t.Fatal(err)
		}
		if err := now.Write(int(w.Fd())); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if got, want := nodes(t, root), nodes(t, want); !reflect.DeepEqual(got, want) {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
		old = now
	}
}

// nodes returns the mode and content of everything below a directory.
func nodes(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.Walk(root, func(p string, st os.FileInfo, err error) error {
		if err != nil || p == root {
			return err
		}
		what := st.Mode().String() + " "
		switch {
		case st.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			what += string(b)
		case st.Mode()&os.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			what += to
		}
		all[p[len(root):]] = what
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestWatchBounded: no number of events makes one look at them long.
func TestWatchBounded(t *testing.T) {
	w := NewWatch()
	defer w.Close()
	host := fakeHost(t, "etc/services = x")
	must(t, Options{Host: host, Watch: w})
	for i := range 20_000 {
		if err := unix.Chmod(host+"/etc/services", uint32(0o600+i%2)); err != nil {
			t.Fatal(err)
		}
	}
	if n, ok := w.Changes(); n == 0 || n > maxReads || !ok {
		t.Errorf("%d, %v", n, ok)
	}
}
