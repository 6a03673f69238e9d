package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// A sudoer is a user who may run the program through sudo, and nothing else.
const sudoer = 61236

// runAsRoot runs the program as root, as sudo does for the user uid, or as root itself does if uid is 0.
func runAsRoot(t *testing.T, uid int, args ...string) (said string, code int) {
	t.Helper()
	cmd := exec.Command(sandboxtest.Bin(t, "corral-front"), args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent"}
	if uid != 0 {
		cmd.Env = append(cmd.Env, "SUDO_UID="+strconv.Itoa(uid), "SUDO_GID="+strconv.Itoa(uid))
	}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// TestSudoFiles: a file that the command line names is opened with the rights of the user who called sudo. Errors quote
// what is wrong in a file, so a file of root's would be read through them.
func TestSudoFiles(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	dir := sandboxtest.OpenDir(t)
	write := func(name, content string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := write("secret", "hunter2\n", 0o600)
	request := write("request.json", `{"hunter2": 1}`, 0o600)
	for _, args := range [][]string{
		{"serve", "--config", secret},
		{"mcp", "--config", secret},
		{"mcp", "--repo", dir, "--config", secret},
		{"exec-server", "--config", secret},
		{"policy", "test", "/dev/null", "--config", secret},
		{"policy", "test", request},
		{"token", "list", "--config", secret},
		{"repo", "list", "--config", secret},
		{"network", "list", "--config", secret},
		{"policy", "test", "--connect", "example.org", "--config", secret},
		{"index", "stats", "--config", secret},
		{"config", "check", secret},
		{"config", "show", secret},
	} {
		said, code := runAsRoot(t, sudoer, args...)
		if code == 0 || strings.Contains(said, "hunter2") || !strings.Contains(said, "permission denied") || !strings.Contains(said, "user 61236") {
			t.Errorf("%q: code %d, %s", args, code, said)
		}
		if said, _ := runAsRoot(t, 0, args...); !strings.Contains(said, "hunter2") { // root sees what is wrong
			t.Errorf("%q without sudo: %s", args, said)
		}
	}
	if said, code := runAsRoot(t, sudoer, "config", "check", write("public.yaml", "version: 1\n", 0o644)); code != 0 {
		t.Errorf("a file that the user can read: code %d, %s", code, said)
	}
}

// TestSudoState: a state directory that the command line names is opened with the rights of the user who called sudo, who would
// otherwise read and remove what other users' front-ends have stored.
func TestSudoState(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	const other = sudoer + 1
	dir := sandboxtest.OpenDir(t)
	for _, uid := range []int{sudoer, other} {
		path := filepath.Join(dir, strconv.Itoa(uid))
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, uid, uid); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"output"}, {"index", "stats"}, {"index", "purge", "--yes"}} {
			said, code := runAsRoot(t, sudoer, append(args, "--state", path)...)
			if uid == other && (code == 0 || !strings.Contains(said, "permission denied")) {
				t.Errorf("%q of another user: code %d, %s", args, code, said)
			}
			if uid == sudoer && code != 0 {
				t.Errorf("%q of the user's own: code %d, %s", args, code, said)
			}
		}
		if said, code := runAsRoot(t, 0, "output", "--state", path); code != 0 { // root may name anybody's
			t.Errorf("without sudo: code %d, %s", code, said)
		}
	}
}
