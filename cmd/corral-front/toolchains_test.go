package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// newHome creates an empty home directory for a place's user.
func newHome(t *testing.T) (*place, homeDir) {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root)
	p := newPlace(t)
	h := homeDir{filepath.Join(p.dir, "home"), uint32(p.uid)}
	makeDir(t, h.path, p.uid, 0o700)
	return p, h
}

// makeDir creates a directory, and its parents as root.
func makeDir(t *testing.T, path string, uid int, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, mode), os.Chown(path, uid, uid)); err != nil {
		t.Fatal(err)
	}
}

// TestUsableToolchains checks that root accepts from a user's list only directories of that user or of root that can be
// shown.
func TestUsableToolchains(t *testing.T) {
	p, h := newHome(t)
	at := func(name string) string { return filepath.Join(h.path, name) }
	makeDir(t, at("own"), p.uid, 0o755)
	makeDir(t, at("own/deep"), p.uid, 0o755)
	makeDir(t, at("roots"), 0, 0o755)
	makeDir(t, at("others"), p.uid+1, 0o755)
	makeDir(t, at("closed"), p.uid, 0o700)
	makeDir(t, at("repo/tool"), p.uid, 0o755)
	makeDir(t, at("mounted"), p.uid, 0o755)
	makeDir(t, filepath.Join(p.dir, "home-of-another"), p.uid, 0o755)
	if err := errors.Join(os.WriteFile(at("file"), nil, 0o755), os.Symlink("own", at("link")), os.Symlink("/usr", at("out"))); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("test", at("mounted"), "tmpfs", 0, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(at("mounted"), unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	list := []string{
		at("own"), at("own/deep"), at("roots"), at("others"), at("closed"), at("repo"), at("repo/tool"), at("mounted"), at("file"), at("link"),
		at("link/deep"), at("out/bin"), at("absent"), h.path, h.path + "/", "/", "/usr/lib", "/root", p.dir + "/home-of-another", "own", "", at("own") + "/",
		h.path + "/../home/own", h.path + "//own", at("a\nb"), at("a\x00b"), at(strings.Repeat("x/", 3000)),
	}
	got, err := h.usable(list, []string{at("repo/tool/app"), "/elsewhere"})
	if want := []string{at("own"), at("own/deep"), at("roots")}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if got, err := h.usable(slices.Repeat([]string{at("own")}, maxToolchains+1), nil); err == nil {
		t.Errorf("%d toolchains", len(got))
	}
	other := homeDir{h.path, h.uid + 1}
	if got, err := other.usable([]string{at("own")}, nil); err == nil {
		t.Errorf("in another user's home directory: %q", got)
	}
}

// TestFindToolchains checks that a user's directory is searched as that user, also when root asked, and without waiting
// for anything.
func TestFindToolchains(t *testing.T) {
	p, h := newHome(t)
	at := func(name string) string { return filepath.Join(h.path, name) }
	for _, name := range []string{".bun/bin/bun", ".nvm/versions/node/v20.1.0/bin/node", "sdk/go1.24.1/bin/go"} {
		makeDir(t, filepath.Dir(at(name)), p.uid, 0o755)
		if err := os.WriteFile(at(name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	makeDir(t, at("sdk"), 0, 0o700) // not accessible to the user
	makeDir(t, at(".nvm/alias"), p.uid, 0o755)
	if err := unix.Mkfifo(at(".nvm/alias/default"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(sandboxtest.Bin(t, "corral-front"), finder)
	cmd.Env = []string{"SUDO_UID=" + itoa(p.uid), "SUDO_GID=" + itoa(p.uid)}
	question, err := json.Marshal(h.path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(question), &out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	err = cmd.Wait()
	var got []string
	if bad := json.Unmarshal(out.Bytes(), &got); err != nil || bad != nil || !slices.Equal(got, []string{at(".bun")}) {
		t.Errorf("%q, %v, %v", out.String(), err, bad)
	}
}
