package image

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// TestDirectory checks all kinds of files, and that no link is followed.
func TestDirectory(t *testing.T) {
	top := t.TempDir()
	outside, where := filepath.Join(top, "outside"), filepath.Join(top, "in")
	err := errors.Join(
		os.Mkdir(outside, 0o755), os.WriteFile(outside+"/secret", []byte("confidential"), 0o600),
		os.Mkdir(where, 0o755), os.Mkdir(where+"/d", 0o750), os.WriteFile(where+"/d/f", []byte("f"), 0o640),
		os.Link(where+"/d/f", where+"/e"), os.WriteFile(where+"/.wh.x", []byte("w"), 0o600), os.WriteFile(where+"/caf\xe9", nil, 0o600),
		os.Symlink("../outside", where+"/up"), os.Symlink(outside+"/secret", where+"/abs"), os.Symlink("up", where+"/chain"),
		unix.Mkfifo(where+"/pipe", 0o644), os.WriteFile(where+"/s", []byte("s"), 0o600), os.Chmod(where+"/s", os.ModeSetuid|os.ModeSetgid|0o755),
	)
	if err != nil {
		t.Fatal(err)
	}
	kind, data, sum, err := flat(t, where, generous)
	if err != nil || kind != "directory" {
		t.Fatalf("a %s: %v", kind, err)
	}
	sameListing(t, listing(t, data), map[string]string{
		"d": "/750", "d/f": "f", "e": "= d/f", ".wh.x": "w", "caf\xe9": "", "up": "-> ../outside", "abs": "-> " + outside + "/secret",
		"chain": "-> up", "s": "s",
	})
	if bytes.Contains(data, []byte("confidential")) {
		t.Error("the archive contains a file from outside the directory")
	}
	if sum.Devices != 1 || sum.SetID != 1 {
		t.Errorf("%+v", sum)
	}
	unpacked(t, data, sum)
	_, again, _, err := flat(t, where, generous)
	if err != nil || !bytes.Equal(data, again) {
		t.Errorf("a second archive of the same directory differs: %v", err)
	}
}

// TestUnreadable checks that unreadable files are reported, and the others archived.
func TestUnreadable(t *testing.T) {
	where := t.TempDir()
	err := errors.Join(os.WriteFile(where+"/a", []byte("a"), 0o644), os.WriteFile(where+"/shadow", []byte("x"), 0o000),
		os.Mkdir(where+"/root", 0o755), os.WriteFile(where+"/root/in", nil, 0o644), os.Chmod(where+"/root", 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(where+"/root", 0o755) })
	s, err := Open(where, generous)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var b bytes.Buffer
	var sum Summary
	sandboxtest.AsNobody(t, where, func() { sum, err = s.Write(&b) })
	if err != nil {
		t.Fatal(err)
	}
	sameListing(t, listing(t, b.Bytes()), map[string]string{"a": "a", "root": "/0"})
	if got := strings.Join(sum.Unreadable.First, " "); got != "root shadow" || sum.Unreadable.Count != 2 {
		t.Errorf("%d: %s", sum.Unreadable.Count, got)
	}
}

// TestMounts checks that mounts inside a directory are not archived, such as /proc of a system in use.
func TestMounts(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	where := t.TempDir()
	if err := errors.Join(os.Mkdir(where+"/proc", 0o555), os.WriteFile(where+"/a", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", where+"/proc", "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(where+"/proc", unix.MNT_DETACH) })
	if err := os.WriteFile(where+"/proc/kcore", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, data, sum, err := flat(t, where, generous)
	if err != nil {
		t.Fatal(err)
	}
	sameListing(t, listing(t, data), map[string]string{"a": "", "proc": "/1777"})
	if sum.Mounts.Count != 1 || sum.Mounts.First[0] != "proc" {
		t.Errorf("%+v", sum.Mounts)
	}
}

func TestDirectoryLimits(t *testing.T) {
	where := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(where, name), make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for want, limits := range map[string]Limits{"more than 2 files": {Entries: 2, Bytes: 1000}, "more than 250 bytes": {Entries: 10, Bytes: 250}} {
		if _, _, _, err := flat(t, where, Options{Limits: limits}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	deep := where
	for range 130 { // 260 components
		deep += "/d/d"
	}
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := flat(t, where, generous); err == nil || !strings.Contains(err.Error(), "257 components") {
		t.Errorf("got %v", err)
	}
}

// TestSwapped checks that a directory replaced by a link during the walk is not followed.
func TestSwapped(t *testing.T) {
	where, outside := t.TempDir(), t.TempDir()
	err := errors.Join(os.WriteFile(where+"/a", bytes.Repeat([]byte("a"), 4096), 0o600), os.Mkdir(where+"/d", 0o755),
		os.WriteFile(where+"/d/x", []byte("x"), 0o600), os.WriteFile(outside+"/x", []byte("secret"), 0o600),
		os.Mkdir(where+"/other", 0o755))
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{outside, "other"} {
		s, err := Open(where, generous)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		swapped := false
		_, err = s.Write(writerFunc(func(p []byte) (int, error) {
			// "a" is being written: the directory is listed, and "d" not yet opened.
			if !swapped {
				swapped = true
				if err := errors.Join(os.Rename(where+"/d", where+"/was"), os.Symlink(target, where+"/d")); err != nil {
					t.Error(err)
				}
			}
			return b.Write(p)
		}))
		if bytes.Contains(b.Bytes(), []byte("secret")) {
			t.Errorf("%s: the archive contains a file from outside, %v", target, err)
		}
		if err := errors.Join(s.Close(), os.Remove(where+"/d"), os.Rename(where+"/was", where+"/d")); err != nil {
			t.Fatal(err)
		}
	}
}
