package rootfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tempDir returns t.TempDir on a tmpfs if there is one, as a jail's root is, because some tests create thousands of
// files.
func tempDir(t testing.TB) string {
	t.Helper()
	if st, err := os.Stat("/dev/shm"); err == nil && st.Mode()&0o002 != 0 {
		t.Setenv("TMPDIR", "/dev/shm")
	}
	return t.TempDir()
}

// fakeHost creates a host tree of nodes: "dir/", "link -> target" or "file = content", all accessible to everybody.
func fakeHost(t *testing.T, nodes ...string) string {
	t.Helper()
	root := tempDir(t)
	for _, n := range append([]string{"usr/bin/", "etc/"}, nodes...) {
		name, target, isLink := strings.Cut(n, " -> ")
		name, content, _ := strings.Cut(name, " = ")
		p := filepath.Join(root, name)
		parent := p
		if !strings.HasSuffix(name, "/") {
			parent = filepath.Dir(p)
		}
		if err := os.MkdirAll(parent, 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch {
		case isLink:
			err = os.Symlink(target, p)
		case parent != p:
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// must returns the tree for valid options.
func must(t *testing.T, o Options) Tree {
	t.Helper()
	tree, err := Host(o)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// find returns the entry of a path, nil if there is none.
func find(tree Tree, p string) *Entry {
	for i := range tree.Entries {
		if tree.Entries[i].Path == p {
			return &tree.Entries[i]
		}
	}
	return nil
}

// describe returns an entry in the notation of fakeHost.
func describe(tree Tree, p string) string {
	e := find(tree, p)
	switch {
	case e == nil:
		return "absent"
	case e.Mode.IsDir():
		return "dir"
	case e.Link != "":
		return "-> " + e.Link
	}
	return "= " + string(e.Data)
}

// skipped returns the reason why a path was not copied.
func skipped(tree Tree, p string) string {
	for _, s := range tree.Skipped {
		if s.Path == p {
			return s.Reason
		}
	}
	return ""
}
