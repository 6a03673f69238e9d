package telemetry

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// TestFile: the file is created by the first span and gets one line per span.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spans.json")
	tracer := open(t, Options{Traces: File, File: path})
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("before the first span: %v", err)
	}
	call(tracer, sampled, "")
	tracer.Close()
	text, err := os.ReadFile(path)
	if err != nil || strings.Count(string(text), "\n") != 5 || strings.Contains(string(text), "secret") {
		t.Errorf("%v: %s", err, text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestFileRotates: a full file is rotated once, whichever of two writers fills it, and no line is split.
func TestFileRotates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spans.json")
	writers := []*file{{path: path, maxBytes: 1000}, {path: path, maxBytes: 1000}}
	for n := range 60 {
		line := fmt.Sprintf("%03d%s\n", n, strings.Repeat("x", 46))
		if m, err := writers[n%2].Write([]byte(line)); m != len(line) || err != nil {
			t.Fatal(m, err)
		}
	}
	var all string
	for _, name := range []string{path + ".1", path} {
		text, err := os.ReadFile(name)
		if err != nil || len(text) > 1000+50 || len(text)%50 != 0 {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
		all += string(text)
	}
	if !strings.Contains(all, "059x") || !strings.Contains(all, "045x") {
		t.Errorf("the last lines are gone:\n%s", all)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 2 {
		t.Errorf("%d files", len(entries))
	}
}

// TestFileRefused: nothing is written to a file that is not regular, or that others can write to, link to or replace.
func TestFileRefused(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := errors.Join(
		os.WriteFile(target, nil, 0o600), os.Symlink(target, filepath.Join(dir, "link")), unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"group": 0o620, "all": 0o602, "linked": 0o600, "open/x": 0o600, "sticky/x": 0o600} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(
		os.Link(filepath.Join(dir, "linked"), filepath.Join(dir, "other")), os.Chmod(filepath.Join(dir, "open"), 0o703),
		os.Chmod(filepath.Join(dir, "sticky"), 0o703|os.ModeSticky),
	); err != nil {
		t.Fatal(err)
	}
	if _, err := (&file{path: filepath.Join(dir, "sticky/x")}).Write([]byte("x")); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"link": "symbolic link", "fifo": "", ".": "", "none/x": "no such file", "group": "writable by", "all": "writable by",
		"linked": "hard link", "other": "hard link", "open/x": "can be replaced by any user", "open/new": "can be replaced by any user",
	} {
		w := &file{path: filepath.Join(dir, name)}
		if _, err := w.Write([]byte("x")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"target", "group", "all", "linked", "open/x"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || len(text) > 0 {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

// TestFileOwner: another user's file is not appended to.
func TestFileOwner(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	path := filepath.Join(t.TempDir(), "spans.json")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 1234, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := (&file{path: path}).Write([]byte("x")); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Error(err)
	}
}
