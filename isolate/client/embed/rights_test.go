package embed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/sandboxtest"
)

// lowers runs in a child, as sudo runs a front-end: what it can open, as itself, as root, and for good.
func lowers(secret, users string) error {
	if err := Lower(); err != nil {
		return err
	}
	read := func(path string) func() error {
		return func() error {
			_, err := os.ReadFile(path)
			return err
		}
	}
	for _, tt := range []struct {
		name   string
		f      func() error
		denied bool
	}{
		{"a file of root's", read(secret), true},
		{"as root", func() error { return Configuring.Do(read(secret)) }, false},
		{"as root within root", func() error {
			return Configuring.Do(func() error { return errors.Join(Reading.Do(read(secret)), read(secret)()) })
		}, false},
		{"after root", read(secret), true},
		{"at a path of root's", func() error { return Configuring.At(secret, read(secret)) }, false},
		{"at a new path of root's", func() error {
			return Configuring.At(filepath.Join(filepath.Dir(secret), "new"), read(secret))
		}, false},
		{"at a path of the user's", func() error { return Configuring.At(users, read(secret)) }, true},
		{"at a new path of the user's", func() error { return Configuring.At(filepath.Join(filepath.Dir(users), "new"), read(secret)) }, true},
		{"at a link of the user's to root's", func() error {
			return Configuring.At(filepath.Join(filepath.Dir(users), "link", filepath.Base(secret)), read(secret))
		}, true},
		{"after an error", func() error {
			err := Reading.Do(func() error { return errors.New("an error") })
			if err == nil || os.Geteuid() == 0 {
				return fmt.Errorf("user %d, %w", os.Geteuid(), err)
			}
			return nil
		}, false},
	} {
		if err := tt.f(); errors.Is(err, unix.EACCES) != tt.denied || err != nil && !tt.denied {
			return fmt.Errorf("%s: %w, denied: want %v", tt.name, err, tt.denied)
		}
	}
	if err := (Identity{os.Geteuid(), os.Getegid()}).Become(); err != nil {
		return err
	}
	if err := Configuring.Do(read(secret)); !errors.Is(err, unix.EACCES) || Root() {
		return fmt.Errorf("after Become: %w", err)
	}
	return nil
}

// TestLower: a front-end that was started through sudo has the rights of its caller, and root's for what needs them, until it gives
// those up for good.
func TestLower(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	const caller = 54321
	roots := rootsDir(t)
	users := sandboxtest.OpenDir(t)
	secret, own := filepath.Join(roots, "secret"), filepath.Join(users, "own")
	if err := errors.Join(
		os.WriteFile(secret, nil, 0o600), os.WriteFile(own, nil, 0o644), os.Symlink(roots, filepath.Join(users, "link")), os.Chown(users, caller, caller),
	); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{
		"EMBED_TEST_LOWER=" + secret + ":" + own, "SUDO_UID=" + strconv.Itoa(caller), "SUDO_GID=" + strconv.Itoa(caller),
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	// Without a number of the caller, nothing is done at all.
	cmd = exec.Command("/proc/self/exe")
	cmd.Env = []string{"EMBED_TEST_LOWER=" + secret + ":" + own, "SUDO_UID=x"}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "SUDO_UID is") {
		t.Errorf("%v: %s", err, out)
	}
}

// rootsDir returns a directory that root alone can change: those above it, too.
func rootsDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/run", "corral-test-") //nolint:usetesting // others can change what is above t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestNeeds: ARCHITECTURE.md has the list of what front-ends do as root.
func TestNeeds(t *testing.T) {
	page, err := os.ReadFile("../../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "<!-- needs -->")
	table, _, _ = strings.Cut(table, "<!-- /needs -->")
	for _, n := range Needs() {
		row := "| " + n.Name + " | " + n.Why + " |\n"
		if !strings.Contains(table, row) {
			t.Errorf("ARCHITECTURE.md lacks the row\n%s", row)
		}
		table = strings.Replace(table, row, "", 1)
	}
	if n := strings.Count(table, "\n|"); n != 2 {
		t.Errorf("ARCHITECTURE.md has other rows:\n%s", table)
	}
}
