package rootfs

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// aHost returns a host with some files in its /etc.
func aHost(t *testing.T) string {
	t.Helper()
	return fakeHost(t, "etc/services = http", "etc/ssl/certs/a.pem = one", "etc/ssl/certs/b.pem -> a.pem", "etc/ld.so.cache = x")
}

// kept reports whether the tree of host is made from the copy in e.
func kept(t *testing.T, host string, e *Etc) bool {
	t.Helper()
	e.mu.Lock()
	before := e.kept.entries
	e.mu.Unlock()
	tree := must(t, Options{Host: host, Etc: e})
	if want := must(t, Options{Host: host}); !reflect.DeepEqual(tree, want) {
		t.Errorf("the tree is\n%v\nwith the kept copy and\n%v\nwithout", tree, want)
	}
	for _, old := range before {
		if now := find(tree, old.Path); len(old.Data) > 0 && now != nil && len(now.Data) > 0 {
			return &now.Data[0] == &old.Data[0]
		}
	}
	return false
}

func TestEtcIsKept(t *testing.T) {
	host, e := aHost(t), &Etc{}
	defer e.Close()
	if kept(t, host, e) {
		t.Error("kept before it was read")
	}
	for range 3 {
		if !kept(t, host, e) {
			t.Error("read again, although nothing changed")
		}
	}
	if kept(t, aHost(t), e) {
		t.Error("the copy of another host is used")
	}
}

func TestEtcChanged(t *testing.T) {
	for name, change := range map[string]func(etc string) error{
		"file written": func(etc string) error { return os.WriteFile(filepath.Join(etc, "services"), []byte("smtp"), 0o644) },
		"file closed":  func(etc string) error { return os.Chmod(filepath.Join(etc, "services"), 0o600) },
		"file added":   func(etc string) error { return os.WriteFile(filepath.Join(etc, "protocols"), []byte("tcp"), 0o644) },
		"file moved":   func(etc string) error { return os.Rename(filepath.Join(etc, "services"), filepath.Join(etc, "magic")) },
		"file removed": func(etc string) error { return os.Remove(filepath.Join(etc, "ssl/certs/a.pem")) },
		"link replaced": func(etc string) error {
			return replace(filepath.Join(etc, "ssl/certs/b.pem"), func(p string) error { return os.Symlink("c.pem", p) })
		},
		"link touched": func(etc string) error {
			return unix.Lutimes(filepath.Join(etc, "ssl/certs/b.pem"), make([]unix.Timeval, 2))
		},
		"directory closed": func(etc string) error { return os.Chmod(filepath.Join(etc, "ssl/certs"), 0o700) },
		"directory replaced": func(etc string) error {
			return replace(filepath.Join(etc, "ssl"), func(p string) error { return os.Mkdir(p, 0o755) })
		},
		"directory above replaced by a link": func(etc string) error {
			return replace(filepath.Join(etc, "ssl"), func(p string) error { return os.Symlink(filepath.Base(p)+".old", p) })
		},
		"private key": func(etc string) error {
			return os.WriteFile(filepath.Join(etc, "ssl/certs/a.pem"), []byte("-----BEGIN PRIVATE KEY-----"), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			host, e := aHost(t), &Etc{}
			defer e.Close()
			kept(t, host, e)
			before, ok := e.Changes()
			if again, _ := e.Changes(); !ok || again != before {
				t.Errorf("noticed before: %d, %d, %v", before, again, ok)
			}
			if err := change(filepath.Join(host, "etc")); err != nil {
				t.Fatal(err)
			}
			if now, ok := e.Changes(); !ok || now == before {
				t.Errorf("not noticed: %d, %v", now, ok)
			}
			if kept(t, host, e) {
				t.Error("the outdated copy is used")
			}
		})
	}
}

// TestEtcElsewhere: what a watch of directories does not tell is noticed all the same: what is mounted there, and what is written to a
// file by another of its names.
func TestEtcElsewhere(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	host, e := aHost(t), &Etc{}
	defer e.Close()
	services, other, etc := filepath.Join(host, "etc/services"), filepath.Join(host, "other"), filepath.Join(host, "etc")
	mount := func(from, at string) error {
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
		return unix.Mount(from, at, "", unix.MS_BIND, "")
	}
	for _, step := range []struct {
		name   string
		change func() error
	}{
		{"a file with another name", func() error {
			return errors.Join(os.WriteFile(other, []byte("http"), 0o644), replace(services, func(p string) error { return os.Link(other, p) }))
		}},
		{"written by its other name", func() error { return os.WriteFile(other, []byte("smtp"), 0o644) }},
		{"another file", func() error { return errors.Join(os.Remove(other), os.WriteFile(other, []byte("pop3"), 0o644)) }},
		{"mounted over a file", func() error { return mount(other, services) }},
		{"written where it is mounted from", func() error { return os.WriteFile(other, []byte("imap"), 0o644) }},
		{"mounted over all", func() error { return mount(t.TempDir(), etc) }},
		{"nothing is mounted any more", func() error { return errors.Join(unix.Unmount(etc, 0), unix.Unmount(services, 0)) }},
	} {
		kept(t, host, e)
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		kept(t, host, e)
		if t.Failed() {
			t.Fatal(step.name)
		}
	}
	if !kept(t, host, e) {
		t.Error("not kept in the end")
	}
}

// replace renames path to path.old and creates a new node at path.
func replace(path string, by func(path string) error) error {
	if err := os.Rename(path, path+".old"); err != nil {
		return err
	}
	return by(path)
}

// TestEtcUnwatched: without a watch, a copy is not used, and nobody takes it for unchanged.
func TestEtcUnwatched(t *testing.T) {
	host, e := aHost(t), &Etc{}
	kept(t, host, e)
	e.Close()
	for range 2 {
		if kept(t, host, e) {
			t.Error("kept")
		}
	}
	for _, e := range []*Etc{e, nil} {
		if _, ok := e.Changes(); ok {
			t.Error("it answers")
		}
	}
}

func TestBeyond(t *testing.T) {
	file := func(path, content string) Entry { return Entry{Path: path, Mode: 0o644, Data: []byte(content)} }
	dir := Entry{Path: "/work", Mode: os.ModeDir | 0o755}
	base := Tree{Entries: []Entry{file("/etc/a", "1"), {Path: "/etc/l", Mode: os.ModeSymlink | 0o777, Link: "a"}, file("/etc/e", "")}}
	for name, c := range map[string]struct {
		tree []Entry
		more []Entry
		ok   bool
	}{
		"the same":        {base.Entries, nil, true},
		"one more":        {[]Entry{base.Entries[0], dir, base.Entries[1], base.Entries[2]}, []Entry{dir}, true},
		"more at the end": {append(append([]Entry{}, base.Entries...), dir), []Entry{dir}, true},
		"one less":        {base.Entries[:2], nil, false},
		"none":            {nil, nil, false},
		"content":         {[]Entry{file("/etc/a", "2"), base.Entries[1], base.Entries[2]}, nil, false},
		"equal content":   {[]Entry{file("/etc/a", "1"), base.Entries[1], base.Entries[2]}, nil, true},
		"link":            {[]Entry{base.Entries[0], {Path: "/etc/l", Mode: os.ModeSymlink | 0o777, Link: "b"}, base.Entries[2]}, nil, false},
		"mode":            {[]Entry{{Path: "/etc/a", Mode: 0o755, Data: []byte("1")}, base.Entries[1], base.Entries[2]}, nil, false},
	} {
		more, ok := Tree{Entries: c.tree}.Beyond(base)
		if ok != c.ok || ok && !reflect.DeepEqual(more.Entries, c.more) {
			t.Errorf("%s: %v %v, want %v %v", name, more.Entries, ok, c.more, c.ok)
		}
	}
}
