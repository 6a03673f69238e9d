package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/front/server"
	"corral/internal/test/sandboxtest"
)

// TestFindToolchains checks that a user's directory is searched as that user, also when root asked, and without waiting
// for anything. Of module caches, only downloads are found.
func TestFindToolchains(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	p := newPlace(t)
	home := filepath.Join(p.dir, "home")
	at := func(name string) string { return filepath.Join(home, name) }
	makeDir(t, home, p.uid, 0o700)
	for _, name := range []string{".bun/bin/bun", ".nvm/versions/node/v20.1.0/bin/node", "sdk/go1.24.1/bin/go"} {
		makeDir(t, filepath.Dir(at(name)), p.uid, 0o755)
		if err := os.WriteFile(at(name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	makeDir(t, at("go/pkg/mod/cache/download"), p.uid, 0o755)
	makeDir(t, at("go/pkg/mod/cache/vcs"), p.uid, 0o755)
	makeDir(t, at(".npm/_cacache"), p.uid, 0o755)
	makeDir(t, at(".cargo/registry"), p.uid, 0o755)
	makeDir(t, at(".cache/pip"), p.uid, 0o755)
	makeDir(t, at("sdk"), 0, 0o700) // not accessible to the user
	makeDir(t, at(".nvm/alias"), p.uid, 0o755)
	if err := unix.Mkfifo(at(".nvm/alias/default"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(sandboxtest.Bin(t, "corral-front"), server.ToolchainFinder)
	cmd.Env = []string{"SUDO_UID=" + itoa(p.uid), "SUDO_GID=" + itoa(p.uid)}
	question, err := json.Marshal(home)
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
	want := []string{at(".bun"), at("go/pkg/mod/cache/download"), at(".npm/_cacache"), at(".cargo/registry")}
	if bad := json.Unmarshal(out.Bytes(), &got); err != nil || bad != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, %v", out.String(), err, bad)
	}
}

// makeDir creates a directory, and its parents as root.
func makeDir(t *testing.T, path string, uid int, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, mode), os.Chown(path, uid, uid)); err != nil {
		t.Fatal(err)
	}
}
