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
	"syscall"
	"testing"
	"time"

	"corral/internal/sandboxtest"
)

// A reviewed is what a command of corral changes says.
type reviewed struct {
	code           int
	stdout, stderr string
}

// as runs a program as the place's user, or as root.
func (p *place) as(t *testing.T, uid int, program string, args ...string) reviewed {
	t.Helper()
	cmd := exec.Command(filepath.Join(p.dir, program), args...)
	cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin", "HOME=" + p.dir}, p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return reviewed{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// A review is a session with an overlay, and the commands on it.
type review struct {
	t  *testing.T
	p  *place
	d  *daemon
	id string
}

func newReview(t *testing.T, options ...string) *review {
	t.Helper()
	sandboxtest.RequireJails(t, sandboxtest.FileSystem("overlay"))
	p := newPlace(t)
	if err := copyFile(sandboxtest.Bin(t, "corral"), filepath.Join(p.dir, "corral")); err != nil {
		t.Fatal(err)
	}
	p.file(t, "a", "one\n", 0o644)
	p.file(t, "d/b", "two\n", 0o644)
	r := &review{t: t, p: p, d: p.daemon(t)}
	r.open(options...)
	return r
}

func (r *review) open(options ...string) {
	r.t.Helper()
	got := r.corral(append([]string{"session", "open", "--repo", r.p.repo, "--workspace", "overlay", "--supervisor", r.d.socket}, options...)...)
	r.id = strings.TrimSpace(got.stdout)
	if got.code != 0 {
		r.t.Fatalf("%+v", got)
	}
}

func (r *review) corral(args ...string) reviewed { return r.p.as(r.t, r.p.uid, "corral", args...) }

// job runs a line of shell in the session.
func (r *review) job(line string) {
	r.t.Helper()
	if got := r.corral("session", "exec", r.id, "--supervisor", r.d.socket, "--", "sh", "-ec", line); got.code != 0 {
		r.t.Fatalf("%+v", got)
	}
}

func (r *review) close() {
	r.t.Helper()
	if got := r.corral("session", "close", r.id, "--supervisor", r.d.socket); got.code != 0 || got.stdout != r.id+"\n" {
		r.t.Fatalf("%+v", got)
	}
}

// changes runs corral changes, as the session's user.
func (r *review) changes(verb string, args ...string) reviewed {
	r.t.Helper()
	return r.p.as(r.t, r.p.uid, "corral-front", append([]string{"changes", verb, "--supervisor", r.d.socket, r.id}, args...)...)
}

func (r *review) want(got reviewed, code int, stdout, stderr string) {
	r.t.Helper()
	if got.code != code || got.stdout != stdout || got.stderr != stderr {
		r.t.Errorf("got %+v, want %d\n%q\n%q", got, code, stdout, stderr)
	}
}

func (r *review) content(name string) string {
	b, err := os.ReadFile(filepath.Join(r.p.repo, name))
	if err != nil {
		return "-"
	}
	return string(b)
}

// TestChanges reviews and applies what jobs of a session did, in jails: first while it is open, then what it left.
func TestChanges(t *testing.T) {
	r := newReview(t)
	r.want(r.changes("show"), 0, "", "")
	r.job("echo ONE >a; rm -r d; mkdir n; echo x >n/x; chmod 700 n/x; ln -s /etc/shadow l; mkdir .vscode; : >.vscode/t")
	lines := "added                 .vscode/\n" +
		"added        0 bytes  .vscode/t\n" +
		"modified     4 bytes  a\n" +
		"deleted      4 bytes  d/ (1 below)\n" +
		"added                 l -> /etc/shadow\n" +
		"added                 n/\n" +
		"added        2 bytes  n/x\n"
	sensitive := "corral: sensitive path added: .vscode\ncorral: sensitive path added: .vscode/t\n"
	r.want(r.changes("show"), 0, lines, sensitive)
	r.want(r.changes("apply", "--dry-run"), 0, lines, sensitive)
	if r.content("a") != "one\n" || r.content("d/b") != "two\n" || r.content("n/x") != "-" {
		t.Error("it was applied")
	}
	r.want(r.changes("apply", filepath.Join(r.p.repo, "n"), "a"), 0, "added                 n/\nadded        2 bytes  n/x\nmodified     4 bytes  a\n", "")
	if r.content("a") != "ONE\n" || r.content("n/x") != "x\n" || r.content("d/b") != "two\n" {
		t.Error("it was not applied as asked")
	}
	r.want(r.changes("show", "n"), failure, "", "corral: \"n\": no change at this path\n")
	info, err := os.Stat(filepath.Join(r.p.repo, "n/x"))
	if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != r.p.uid || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	r.close()
	r.want(r.changes("apply"), 0, "added                 .vscode/\nadded        0 bytes  .vscode/t\nadded                 l -> /etc/shadow\ndeleted      4 bytes  d/ (1 below)\n",
		sensitive+"corral: everything is applied, and the layer of the session is removed\n")
	if r.content("d/b") != "-" || r.content(".vscode/t") != "" {
		t.Error("it was not applied")
	}
	if got := r.changes("show"); got.code != failure || !strings.Contains(got.stderr, "there is no session "+r.id) {
		t.Errorf("%+v", got)
	}
}

// TestChangesConflict: what its owner does in the repository meanwhile stays, until it is the same.
func TestChangesConflict(t *testing.T) {
	r := newReview(t, "--profile", "strict")
	r.job("echo ONE >a; echo TWO >d/b")
	r.p.file(t, "a", "mine\n", 0o644)
	got := r.changes("apply")
	r.want(got, 1, "", "corral: conflict: a: changed in the repository since the session was opened\ncorral: nothing was applied\n"+
		"hint: apply what is not in conflict by naming its paths, or merge by hand: corral changes diff "+r.id+"\n")
	if r.content("a") != "mine\n" || r.content("d/b") != "two\n" {
		t.Error("something was applied")
	}
	r.close()
	var answer struct {
		Session      string
		Applied      bool
		LayerRemoved bool
		Changes      []struct{ Path, Kind string }
		Conflicts    []struct{ Path, Reason string }
	}
	got = r.changes("apply", "--json")
	if err := json.Unmarshal([]byte(got.stdout), &answer); err != nil || got.code != 1 || answer.Applied || answer.LayerRemoved ||
		answer.Session != r.id || len(answer.Changes) != 0 || len(answer.Conflicts) != 1 || answer.Conflicts[0].Path != "a" {
		t.Errorf("%+v, %v", got, err)
	}
	r.p.file(t, "a", "ONE\n", 0o644)
	got = r.changes("apply", "--json")
	if err := json.Unmarshal([]byte(got.stdout), &answer); err != nil || got.code != 0 || !answer.Applied || !answer.LayerRemoved ||
		len(answer.Changes) != 1 || answer.Changes[0].Path != "d/b" || len(answer.Conflicts) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestChangesDiff: git makes of a copy of the repository what the jobs have seen.
func TestChangesDiff(t *testing.T) {
	r := newReview(t)
	r.job("seq 100 >n; echo ONE >>a; rm d/b; printf 'a\\0b' >bin; mkdir empty")
	got := r.changes("diff")
	if got.code != 1 || got.stderr != "corral: not in the patch: empty: it is an empty directory\n" {
		t.Errorf("%+v", got)
	}
	got = r.changes("diff", "a")
	if got.code != 0 || !strings.HasPrefix(got.stdout, "diff --git a/a b/a\n") || !strings.HasSuffix(got.stdout, "\n@@ -1 +1,2 @@\n one\n+ONE\n") {
		t.Errorf("%+v", got)
	}
	sandboxtest.Require(t, sandboxtest.Program("git"))
	copied := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.Command("cp", "-a", r.p.repo, copied).CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	cmd := exec.Command("git", "apply")
	cmd.Dir, cmd.Stdin = copied, strings.NewReader(r.changes("diff").stdout)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	if got := r.changes("apply"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if err := os.Remove(filepath.Join(r.p.repo, "empty")); err != nil {
		t.Error(err)
	}
	_ = os.Remove(filepath.Join(r.p.repo, "d")) // git has no empty directories
	if out, err := exec.Command("diff", "-r", copied, r.p.repo).CombinedOutput(); err != nil {
		t.Errorf("%s", out)
	}
}

// TestChangesGit commits in the session: the repository has the commit when it is applied.
func TestChangesGit(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("git"))
	r := newReview(t)
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=ada", "-c", "user.email=ada@example.org"}, args...)...)
		cmd.Dir, cmd.Env = r.p.repo, []string{"PATH=/usr/bin:/bin", "HOME=" + r.p.dir}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(r.p.uid), Gid: uint32(r.p.uid)}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %s", args, out)
		}
		return string(out)
	}
	git("init", "-q")
	git("add", "-A")
	git("commit", "-qm", "first")
	r.open()
	r.job("git mv a moved; echo more >>moved; git add -A; git -c user.name=job -c user.email=job@example.org commit -qm second; git gc -q; test -z \"$(git status --porcelain)\"")
	if log := git("log", "--format=%s"); log != "first\n" {
		t.Errorf("%q", log)
	}
	if got := r.changes("apply"); got.code != 0 || got.stderr != "" {
		t.Fatalf("%+v", got)
	}
	if log := git("log", "--format=%an %s"); log != "job second\nada first\n" {
		t.Errorf("%q", log)
	}
	if status := git("status", "--porcelain"); status != "" {
		t.Errorf("%q", status)
	}
	git("fsck", "--strict")
	if got := r.changes("show"); strings.Contains(got.stdout, "moved") || got.code != 0 {
		t.Errorf("%+v", got)
	}
}

// TestChangesOfOthers: a session is its user's, and root's, who is not root while it looks.
func TestChangesOfOthers(t *testing.T) {
	r := newReview(t)
	r.job("echo ONE >a; touch \"$(printf '\\033[2J')\"")
	show := []string{"changes", "show", "--supervisor", r.d.socket, r.id}
	if got := r.p.as(t, 61301, "corral-front", show...); got.code != failure || got.stdout != "" || !strings.Contains(got.stderr, "there is no session") {
		t.Errorf("%+v", got)
	}
	want := "added        0 bytes  \"\\x1b[2J\"\nmodified     4 bytes  a\n"
	r.want(r.p.as(t, 0, "corral-front", show...), 0, want, "")
	got := r.p.as(t, 0, "corral-front", "changes", "apply", "--supervisor", r.d.socket, r.id, "a")
	r.want(got, 0, "modified     4 bytes  a\n", "")
	info, err := os.Stat(filepath.Join(r.p.repo, "a"))
	if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != r.p.uid {
		t.Errorf("%v, %v", info, err)
	}
	r.want(r.changes("discard"), failure, "", "corral: session "+r.id+" is open\nhint: corral session close --discard "+r.id+" ends it, and every job in it\n")
	r.close()
	r.want(r.changes("show"), 0, "added        0 bytes  \"\\x1b[2J\"\n", "")
	r.want(r.changes("discard"), 0, "", "")
	if got := r.corral("session", "list", "--json", "--supervisor", r.d.socket); got.stdout != "" {
		t.Errorf("%+v", got)
	}
}

// TestChangesJSON has names that are no text.
func TestChangesJSON(t *testing.T) {
	r := newReview(t)
	r.job("touch \"$(printf 'x\\377')\"; rm -r d; chmod 600 a")
	got := r.changes("show", "--json")
	var answer struct {
		Session, Repo      string
		Kept, Incomplete   bool
		Bytes, ChangesMore int64
		Changes            []changeJSON
		Opened             time.Time
	}
	if err := json.Unmarshal([]byte(got.stdout), &answer); err != nil || got.code != 0 || got.stderr != "" {
		t.Fatalf("%+v, %v", got, err)
	}
	want := []changeJSON{
		{Path: "a", Kind: "mode", Type: "file", Bytes: 4, Mode: "0600", OldMode: "0644"},
		{Path: "d", Kind: "deleted", Type: "directory", Bytes: 4, Below: 1, OldMode: "0755"},
		{Path: "x\ufffd", Bytes64: "eP8=", Kind: "added", Type: "file", Mode: "0644"},
	}
	if !slices.Equal(answer.Changes, want) || answer.Session != r.id || answer.Repo != r.p.repo || answer.Bytes != 8 || answer.Kept {
		t.Errorf("%s", got.stdout)
	}
}
