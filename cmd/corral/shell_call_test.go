package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A text of Claude Code's tool Bash, as version 2.1.332 has it, with its parts in place of SNAPSHOT and REPORT.
const bashText = `source SNAPSHOT 2>/dev/null || true && { \builtin shopt -u extglob; } >/dev/null 2>&1 || true && ` +
	`eval 'echo "a b"' < /dev/null && pwd -P >| REPORT`

func textWith(snapshot, report string) string {
	return strings.NewReplacer("SNAPSHOT", snapshot, "REPORT", report).Replace(bashText)
}

// TestParseCall: only texts with names of Claude Code's own files are taken for its tool's, and all others run as they are.
func TestParseCall(t *testing.T) {
	const snapshot, report = "/home/ada/.claude/shell-snapshots/snapshot-bash-1795910267747-u6s0i2.sh", "/tmp/claude-8cc5-cwd"
	whole := "exec 198>&0 </dev/null; " + strings.TrimSuffix(textWith("/dev/shm/.corral-snapshot", ""), " && pwd -P >| ") + " && pwd -P >&198"
	for _, tt := range []struct {
		text, temporary, script, snapshot, report string
	}{
		{text: textWith(snapshot, report), script: whole, snapshot: snapshot, report: report},
		{
			text: textWith("'/home/a b é/.claude/shell-snapshots/snapshot-bash-1-a.sh'", report), script: whole,
			snapshot: "/home/a b é/.claude/shell-snapshots/snapshot-bash-1-a.sh", report: report,
		},
		{
			text: textWith(`"/home/it's \$x/shell-snapshots/snapshot-zsh-1-a.sh"`, report), script: whole,
			snapshot: "/home/it's $x/shell-snapshots/snapshot-zsh-1-a.sh", report: report,
		},
		{text: textWith(snapshot, "'/t m p/claude-1f-cwd'"), temporary: "/t m p/", script: whole, snapshot: snapshot, report: "/t m p/claude-1f-cwd"},
		{text: "eval 'true' && pwd -P >| /tmp/claude-1f-cwd", script: "exec 198>&0 </dev/null; eval 'true' && pwd -P >&198", report: "/tmp/claude-1f-cwd"},
		{text: "source " + snapshot + " 2>/dev/null || true && eval 'x'", script: "source /dev/shm/.corral-snapshot 2>/dev/null || true && eval 'x'", snapshot: snapshot},
		// What another file would get or give is left to the jail.
		{text: "true && pwd -P >| /home/ada/.bashrc"},
		{text: "true && pwd -P >| /home/ada/claude-1f-cwd"},
		{text: "true && pwd -P >| /home/ada/claude-1f-cwd", temporary: "/home"},
		{text: "true && pwd -P >| /tmp/../home/ada/claude-1f-cwd", temporary: "/tmp/../home/ada"},
		{text: "true && pwd -P >| /tmp/claude-../x-cwd"},
		{text: "true && pwd -P >| /tmp/claude--cwd"},
		{text: "true && pwd -P >| /tmp/claude-1f-cwd; true"},
		{text: "true && pwd -P >| /tmp/claude-1f-cwd && true"},
		{text: "true && pwd -P >| $HOME/claude-1f-cwd", temporary: "$HOME"},
		{text: "true && pwd -P >| claude-1f-cwd", temporary: "."},
		{text: "true && pwd -P >| '/tmp/claude-1f-cwd"},
		{text: "source /home/ada/.ssh/id_rsa 2>/dev/null || true && x"},
		{text: "source /home/ada/shell-snapshots/id_rsa.sh 2>/dev/null || true && x"},
		{text: "source shell-snapshots/snapshot-a.sh 2>/dev/null || true && x"},
		{text: "source `x`/shell-snapshots/snapshot-a.sh 2>/dev/null || true && x"},
		{text: "source " + snapshot + " && x"},
		{text: "sh hook.sh"},
		{text: ""},
	} {
		if tt.script == "" {
			tt.script = tt.text
		}
		c := parseCall(tt.text, "/tmp", "", tt.temporary)
		if want := (shellCall{tool: tt.snapshot+tt.report != "", script: tt.script, snapshot: tt.snapshot, report: tt.report}); c != want {
			t.Errorf("%q:\n%+v, want\n%+v", tt.text, c, want)
		}
	}
}

// TestShellOptions: a line is an option with its value, which may have blanks.
func TestShellOptions(t *testing.T) {
	got, err := shellOptions("# comment\n\n--share\n  --env A=b  c \n--network npm\n--env B=")
	if want := []string{"--share", "--env", "A=b  c", "--network", "npm", "--env", "B="}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := shellOptions("--share\nnetwork npm\n"); err == nil || !strings.Contains(err.Error(), `"network npm" is not an option`) {
		t.Errorf("%v", err)
	}
}

// TestReadSnapshot: nothing but a regular file of the caller is read.
func TestReadSnapshot(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(
		os.WriteFile(in("plain"), []byte("f() { :; }\n"), 0o600), os.WriteFile(in("large"), make([]byte, maxSnapshot), 0o600),
		os.WriteFile(in("larger"), make([]byte, maxSnapshot+1), 0o600), os.Symlink(in("plain"), in("link")), unix.Mkfifo(in("fifo"), 0o600),
		os.WriteFile(in("one"), nil, 0o600), os.Link(in("one"), in("two")),
	)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{
		"plain": 11, "large": maxSnapshot, "missing": 0, "larger": -1, "link": -1, "fifo": -1, "two": -1, ".": -1, "../null": -1,
	} {
		path := in(name)
		if name[0] == '.' && len(name) > 1 {
			path = "/dev/null"
		}
		got, err := readSnapshot(path)
		if (err != nil) != (want < 0) || err == nil && len(got) != want {
			t.Errorf("%s: %d bytes, %v, want %d", name, len(got), err, want)
		}
	}
}

// TestReportDirectory: the file gets one directory of the repository, and what was put in its place gets nothing.
func TestReportDirectory(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	repo, victim := filepath.Join(dir, "repo"), filepath.Join(dir, "victim")
	report := filepath.Join(dir, "tmp", "claude-1f-cwd")
	err = errors.Join(
		os.MkdirAll(filepath.Join(repo, "sub é\t"), 0o755), os.Mkdir(filepath.Join(repo, "new\nline"), 0o755), os.Symlink("/usr", filepath.Join(repo, "link")),
		os.Mkdir(filepath.Dir(report), 0o755), os.WriteFile(victim, []byte("before"), 0o600), os.Mkdir(repo+"-beside", 0o755),
		os.Symlink("tmp", filepath.Join(dir, "tmp-link")),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		text string
		want bool
	}{
		{repo + "\n", true},
		{repo + "/sub é\t\n", true},
		{repo, false},
		{"", false},
		{"\n", false},
		{repo + "/new\nline\n", false},
		{repo + "\n" + repo + "\n", false},
		{repo + "/missing\n", false}, // it is in an overlay
		{repo + "/link\n", false},
		{repo + "/link/bin\n", false},
		{repo + "/../victim\n", false},
		{repo + "/sub é\t/..\n", false},
		{repo + "-beside\n", false},
		{dir + "\n", false},
		{"/usr\n", false},
		{"sub\n", false},
		{repo + "/" + strings.Repeat("a/../", maxNote/5) + "\n", false},
	} {
		_ = os.Remove(report)
		err := reportDirectory(report, tt.text, repo)
		b, _ := os.ReadFile(report)
		if err != nil || (string(b) == tt.text) != (tt.want || tt.text == "") {
			t.Errorf("%.100q: %q, %v", tt.text, b, err)
		}
		if st, err := os.Stat(report); err == nil && st.Mode() != 0o600 {
			t.Errorf("its mode is %v", st.Mode())
		}
	}
	for name, put := range map[string]func() error{
		"a link":            func() error { return os.Symlink(victim, report) },
		"a link to nothing": func() error { return os.Symlink(filepath.Join(dir, "fresh"), report) },
		"a file's own link": func() error { return os.Link(victim, report) },
		"a FIFO":            func() error { return unix.Mkfifo(report, 0o600) },
		"a directory":       func() error { return os.Mkdir(report, 0o700) },
	} {
		_ = os.Remove(report)
		if err := put(); err != nil {
			t.Fatal(err)
		}
		err := reportDirectory(report, repo+"\n", repo)
		b, _ := os.ReadFile(victim)
		_, fresh := os.Lstat(filepath.Join(dir, "fresh"))
		if err == nil || string(b) != "before" || fresh == nil {
			t.Errorf("%s: %v; the victim has %q", name, err, b)
		}
	}
	_ = os.Remove(report)
	report = filepath.Join(dir, "tmp-link", "claude-1f-cwd") // the user's directory may be behind a link
	if err := os.WriteFile(report, []byte(strings.Repeat("x", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := reportDirectory(report, repo+"\n", repo); err != nil || content(t, report) != repo+"\n" {
		t.Errorf("a file that is there: %v, %q", err, content(t, report))
	}
}
