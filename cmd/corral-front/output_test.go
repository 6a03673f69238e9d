package main

import (
	"bufio"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/job"
	"corral/store/artifact"
)

// keep stores the output of one job in a state directory, as a server does.
func keep(t testing.TB, state, stdout, stderr string) (handle string) {
	t.Helper()
	f, err := os.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := artifact.Open(f, artifact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out := s.Begin(artifact.BeginOptions{Repo: "app", Runtime: "shell", Principal: "user:ada", Persist: true})
	o, e, err := out.Streams()
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []struct {
		f    *os.File
		text string
	}{{o, stdout}, {e, stderr}} {
		if _, err := io.WriteString(to.f, to.text); err != nil {
			t.Fatal(err)
		}
		to.f.Close()
	}
	out.Finish(&job.Record{Status: job.Failure, Result: job.Result{ExitCode: 3}, Created: time.Now()})
	if h := out.Captured().Handle; h != "" {
		return h
	}
	t.Fatal(out.Captured().Reason)
	return ""
}

// stateOf creates a state directory, which only its owner may access.
func stateOf(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

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
	f, err := userState()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&0o777 != 0o700 {
		t.Errorf("%o, %v", st.Mode, err)
	}
	if os.Geteuid() != 0 {
		states, err := ownStates("", filepath.Join(home, "users"), "")
		if err != nil || len(states) != 1 {
			t.Errorf("%d, %v", len(states), err)
		}
	}
	t.Setenv("XDG_STATE_HOME", "relative")
	t.Setenv("HOME", "")
	if _, err := userState(); err == nil || !strings.Contains(err.Error(), "XDG_STATE_HOME") {
		t.Error(err)
	}
}

// TestEscaper checks that the result does not depend on how the input is split into writes.
func TestEscaper(t *testing.T) {
	in := "plain\ttab\n\x1b[2J\u009b1m \x00\x7f\u202e\U000e0001 é€ \xff\xe2\x82"
	want := "plain\ttab\n" + `\u001b[2J\u009b1m \u0000\u007f\u202e\U000e0001` + " é€ " + `\xff\xe2\x82`
	for step := 1; step <= len(in); step++ {
		var b strings.Builder
		e := &escaper{w: bufio.NewWriter(&b)}
		for rest := in; rest != ""; {
			n := min(step, len(rest))
			if _, err := io.WriteString(e, rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := e.flush(); err != nil || b.String() != want {
			t.Fatalf("in steps of %d: %q", step, b.String())
		}
	}
	var b strings.Builder
	e := &escaper{w: bufio.NewWriter(&b), raw: true}
	if _, err := io.WriteString(e, in); err != nil || e.flush() != nil || b.String() != in {
		t.Errorf("raw: %q, %v", b.String(), err)
	}
}

// TestParseLines checks valid and invalid line ranges.
func TestParseLines(t *testing.T) {
	for in, want := range map[string][2]int64{
		"1": {1, 1}, "10-20": {10, 20}, "7-7": {7, 7}, "3-": {3, math.MaxInt64},
		"": {}, "0": {}, "-5": {}, "5-4": {}, "a": {}, "1-b": {}, "1-2-3": {}, "99999999999999999999": {}, " 1": {},
	} {
		r, err := parseLines(in)
		if (err == nil) != (want[0] > 0) || err == nil && (r.Start != want[0] || r.End != want[1]) {
			t.Errorf("%q: %+v, %v", in, r, err)
		}
	}
}
