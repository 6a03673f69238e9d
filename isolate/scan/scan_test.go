package scan

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// shell runs a script in dir, without the user's git configuration.
func shell(t testing.TB, dir, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-euc", script)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a",
		"GIT_COMMITTER_EMAIL=a@example.org", "GIT_EDITOR=true", "LC_ALL=C",
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%v\n%s", script, err, out)
	}
}

// closeScanner closes the repository of a scanner, which a program leaves to the end of its process.
func closeScanner(t testing.TB, s *Scanner) {
	t.Helper()
	if err := unix.Close(s.fd); err != nil {
		t.Error(err)
	}
}

func scanner(t testing.TB, dir string, b Bounds) *Scanner {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(f, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeScanner(t, s) })
	return s
}

func baseline(t testing.TB, s *Scanner) Report {
	t.Helper()
	rep, err := s.Baseline()
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Paths) > 0 || rep.More > 0 {
		t.Fatalf("Baseline reported paths: %q", rep.Paths)
	}
	return rep
}

func changed(t testing.TB, s *Scanner, since time.Time) Report {
	t.Helper()
	rep, err := s.Changed(since)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(rep.Paths)
	return rep
}

// settle waits until everything written so far is older than the tick that is allowed for, and returns the time.
func settle() time.Time {
	end := time.Now().Add(2 * granularity)
	for time.Now().Before(end) {
		time.Sleep(time.Until(end))
	}
	return time.Now()
}

// same checks that the scanner remembers the same state as a new scanner finds.
func same(t *testing.T, s *Scanner) {
	t.Helper()
	var dump func(n *node, path string, to map[string]bool)
	dump = func(n *node, path string, to map[string]bool) {
		to[path+"/"] = true
		for _, f := range n.files {
			to[path+"/"+f.name] = true
		}
		for _, c := range n.dirs {
			dump(c, path+"/"+c.name, to)
		}
	}
	old, now := map[string]bool{}, map[string]bool{}
	dump(s.root, "", old)
	for key, n := range s.linked {
		dump(n, fmt.Sprint("behind links ", key), old)
	}
	nodes, tracked := s.nodes, s.tracked
	baseline(t, s)
	dump(s.root, "", now)
	for key, n := range s.linked {
		dump(n, fmt.Sprint("behind links ", key), now)
	}
	for p := range old {
		if !now[p] {
			t.Errorf("remembered, but does not exist: %q", p)
		}
	}
	for p := range now {
		if !old[p] {
			t.Errorf("exists, but is not remembered: %q", p)
		}
	}
	if nodes != s.nodes || tracked != s.tracked {
		t.Errorf("counted %d directories and %d files, a new walk %d and %d", nodes, tracked, s.nodes, s.tracked)
	}
}

// TestSince: changes before the start of the job are not reported, later ones are.
func TestSince(t *testing.T) {
	dir := t.TempDir()
	s := scanner(t, dir, Bounds{})
	baseline(t, s)
	shell(t, dir, "echo user > .envrc; mkdir -p a/.git/hooks; echo user > a/.git/hooks/update")
	since := settle()
	if rep := changed(t, s, since); rep.Paths != nil {
		t.Errorf("the user's changes before the job are reported: %q", rep.Paths)
	}
	shell(t, dir, "echo job > .npmrc; rm .envrc")
	if rep := changed(t, s, since); !slices.Equal(rep.Paths, []string{".envrc", ".npmrc"}) {
		t.Errorf("Paths = %q", rep.Paths)
	}
}

// TestSetBack: a clock that was set back is detected, and then every difference is reported.
func TestSetBack(t *testing.T) {
	for _, tc := range []struct {
		wall, mono time.Duration
		want       bool
	}{
		{time.Second, time.Second, false},
		{time.Second - time.Millisecond, time.Second, false},
		{time.Hour, time.Second, false}, // clock set forward, or machine suspended
		{-time.Hour, time.Second, true},
		{time.Second, time.Minute, true},
	} {
		if got := setBack(tc.wall, tc.mono); got != tc.want {
			t.Errorf("setBack(%v, %v) = %v", tc.wall, tc.mono, got)
		}
	}
	dir := t.TempDir()
	s := scanner(t, dir, Bounds{})
	baseline(t, s)
	shell(t, dir, "echo > .profile")
	w := s.newWalk(time.Now(), time.Now().Add(time.Hour))
	w.all = true
	if rep, err := w.run(); err != nil || !slices.Equal(rep.Paths, []string{".profile"}) {
		t.Errorf("report = %q, %v", rep.Paths, err)
	}
}

// TestStates: calls before Baseline or after Close, and of New with a file, return their errors.
func TestStates(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(f, Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); !errors.Is(err, os.ErrClosed) {
		t.Error("New left its argument open")
	}
	if _, err := s.Changed(time.Time{}); !errors.Is(err, ErrNoBaseline) {
		t.Errorf("Changed before Baseline: %v", err)
	}
	closeScanner(t, s)
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err = os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(f, Bounds{}); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("New of a file: %v", err)
	}
}

// TestNewOfPathDescriptor: New accepts a directory that was opened with O_PATH.
func TestNewOfPathDescriptor(t *testing.T) {
	dir := t.TempDir()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(os.NewFile(uintptr(fd), dir), Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeScanner(t, s) })
	baseline(t, s)
	since := time.Now()
	shell(t, dir, "echo > .envrc")
	if rep := changed(t, s, since); strings.Join(rep.Paths, " ") != ".envrc" {
		t.Errorf("Paths = %q", rep.Paths)
	}
}
