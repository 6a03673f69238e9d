package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRootsUser checks whose output root sees.
func TestRootsUser(t *testing.T) {
	for name, tt := range map[string]struct {
		sudo   string
		has    []string
		handle string
		want   string // a part of the directory or the error
	}{
		"the user who called sudo": {"1000", []string{"1001", "1002"}, "in-1002", "/1000"},
		"no output":                {"", nil, "", "/0"},
		"one user's output":        {"", []string{"1001"}, "in-1002", "/1001"},
		"output of several":        {"", []string{"1001", "1002"}, "", "2 users have output"},
		"one has the handle":       {"", []string{"1001", "1002", "1003"}, "in-1002", "/1002"},
		"none has the handle":      {"", []string{"1001", "1002"}, "in-1005", "2 users have output"},
		"a path":                   {"", []string{"1001", "1002"}, "../artifacts/in-1002", "2 users have output"},
		"the directory above":      {"", []string{"1001", "1002"}, "..", "2 users have output"},
		"sudo called by root":      {"0", []string{"1001"}, "", "/1001"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SUDO_UID", tt.sudo)
			t.Setenv("SUDO_GID", tt.sudo)
			users := t.TempDir()
			for _, uid := range append(tt.has, "5/none") {
				dir := filepath.Join(users, uid, "artifacts", "in-"+uid)
				if strings.Contains(uid, "none") {
					dir = filepath.Join(users, uid)
				}
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			got, err := rootsUser(users, tt.handle)
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestUsersState checks that without --state the user's directory is found in the home directory, and that nothing is
// created there.
func TestUsersState(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_STATE_HOME", home)
	t.Setenv("HOME", "/nonexistent")
	f, err := OpenUserState()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&0o777 != 0o700 {
		t.Errorf("%o, %v", st.Mode, err)
	}
	if os.Geteuid() != 0 {
		states, err := OpenExistingState("", filepath.Join(home, "users"), "")
		if err != nil || len(states) != 1 {
			t.Errorf("%d, %v", len(states), err)
		}
	}
	t.Setenv("XDG_STATE_HOME", "relative")
	t.Setenv("HOME", "")
	if _, err := OpenUserState(); err == nil || !strings.Contains(err.Error(), "XDG_STATE_HOME") {
		t.Error(err)
	}
}
