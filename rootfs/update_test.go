package rootfs

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
)

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
	w := &Etc{}
	defer w.Close()
	host := fakeHost(t, "etc/services = x")
	must(t, Options{Host: host, Etc: w})
	for i := range 20_000 {
		if err := unix.Chmod(host+"/etc/services", uint32(0o600+i%2)); err != nil {
			t.Fatal(err)
		}
	}
	if n, ok := w.Changes(); n == 0 || n > maxReads || !ok {
		t.Errorf("%d, %v", n, ok)
	}
}
