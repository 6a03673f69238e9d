package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"corral/config"
	"corral/internal/sandboxtest"
)

// A person is somebody who types commands: root, or one with a home.
type person struct {
	t       *testing.T
	program string
	uid     uint32
	env     []string
}

// run runs corral-front and returns its exit code and what it wrote.
func (u person) run(args ...string) (code int, stdout, stderr string) {
	u.t.Helper()
	cmd := exec.Command(u.program, args...)
	cmd.Dir = "/"
	cmd.Env = u.env
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if u.uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.uid, Gid: u.uid}}
	}
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		u.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// must is run of what has to work, and returns its standard output.
func (u person) must(args ...string) string {
	u.t.Helper()
	code, stdout, stderr := u.run(args...)
	if code != 0 {
		u.t.Fatalf("%q: exit code %d, %s", args, code, stderr)
	}
	return stdout
}

// openDir is a directory that everybody may look into, with the program in it.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	// What testing makes around it is for its maker only.
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(sandboxtest.Bin(t, "corral-front"))
	if err := errors.Join(err, os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "corral-front"), program, 0o700),
		os.Chmod(filepath.Join(dir, "corral-front"), 0o755)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func directories(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRepoOfUser: somebody's repositories are in their own file, which is made when it is needed.
func TestRepoOfUser(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root) // to be two users
	dir := openDir(t)
	home, app, other := filepath.Join(dir, "home"), filepath.Join(dir, "app"), filepath.Join(dir, "x", "app")
	directories(t, home, app, other)
	if err := errors.Join(os.Chown(home, 54321, 54321), os.Symlink(app, filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(home, ".config/corral/config.yaml")
	u := person{t, filepath.Join(dir, "corral-front"), 54321, []string{"HOME=" + home}}
	if got, want := u.must("repo", "add", filepath.Join(dir, "link"), "--id", "mine"), "repository mine is in "+file+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	u.must("repo", "add", "--workspace", "readonly", other)
	want := "version: 1\nrepos:\n  - path: " + app + "\n    id: mine\n  - path: " + other + "\n    workspace: readonly\n"
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%v, %q, want %q", err, got, want)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if got, want := u.must("repo", "list"), "ID    WORKSPACE  PROFILE  PATH\nmine  direct     default  "+app+"\napp   readonly   default  "+other+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := u.must("config", "check"); !strings.HasSuffix(got, file+": ok\n") {
		t.Errorf("%q", got)
	}
	if got := u.must("config", "show"); !strings.Contains(got, "id: mine\n") || !strings.Contains(got, file) {
		t.Errorf("%q", got)
	}
	for _, tt := range []struct{ args, want string }{
		{"repo add " + app, `repository ` + app + ` is there already, as "mine"`},
		{"repo add " + dir + " --id app", `there is a repository "app" already: ` + other},
		{"repo add " + dir + " --workspace copy", `workspace "copy" is not known: direct, overlay or readonly`},
		{"repo add " + dir + " --workspace rw", `workspace "rw" is not known`},
		{"repo add " + dir + " --profile strikt", "did you mean `strict`?"},
		{"repo add " + dir + "/none", "there is no directory"},
		{"repo add " + u.program, "is no directory"},
		{"repo add", "hint: corral repo --help"},
		{"repo add a b", "hint: corral repo --help"},
		{"repo remove mne", `there is no repository "mne"` + "\nhint: did you mean \"mine\"?"},
		{"repo list --id x", "hint: corral repo --help"},
		{"repo", "hint: corral repo --help"},
		{"repo dance", "hint: corral repo --help"},
		{"repo add " + dir + " --config /proc/none/c.yaml", "no such file"},
	} {
		if code, _, stderr := u.run(strings.Fields(tt.args)...); code != failure || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit code %d, %q, want %q", tt.args, code, stderr, tt.want)
		}
	}
	u.must("repo", "remove", "mine")
	u.must("repo", "remove", "app")
	if got, err := os.ReadFile(file); err != nil || string(got) != "version: 1\n" {
		t.Errorf("%v, %q", err, got)
	}
	if err := os.WriteFile(file, []byte("version: 1\nmax_jobs: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := u.run("config", "check"); code != 1 || !strings.Contains(stderr, file+":2:11: `max_jobs` is the supervisor's") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

// TestRepoOfRoot: root changes a file of root's alone, with comments kept; what the file says is read by somebody else.
func TestRepoOfRoot(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	dir := openDir(t)
	file, app := filepath.Join(dir, "c.yaml"), filepath.Join(dir, "app")
	directories(t, app)
	const before = "# the operator's\nversion: 1\nmax_jobs: 3 # few\n"
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	u := person{t, filepath.Join(dir, "corral-front"), 0, []string{"SUDO_UID=54321", "SUDO_GID=54322", "HOME=/root"}}
	code, _, stderr := u.run("repo", "add", app, "--config", file)
	if code != 0 || !strings.Contains(stderr, "users are no longer served the directories that they own") {
		t.Fatalf("exit code %d, %q", code, stderr)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != before+"repos:\n  - path: "+app+"\n" {
		t.Errorf("%v, %q", err, got)
	}
	code, _, stderr = u.run("repo", "remove", "nope", "--config", file)
	if code != failure || !strings.Contains(stderr, `there is no repository "nope"`) || !strings.Contains(stderr, "nothing is changed") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if code, _, stderr = u.run("repo", "remove", "app", "--config", file); code != 0 || !strings.Contains(stderr, "users are served the directories") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if err := os.Chown(file, 54321, -1); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := u.run("repo", "add", app, "--config", file); code != failure || !strings.Contains(stderr, "belongs to user 54321") {
		t.Errorf("another's file: exit code %d, %q", code, stderr)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != before {
		t.Errorf("%v, %q", err, got)
	}
}

func TestToken(t *testing.T) {
	dir := openDir(t)
	file := filepath.Join(dir, "c.yaml")
	u := person{t, filepath.Join(dir, "corral-front"), 0, []string{"HOME=" + dir}}
	if err := os.WriteFile(file, []byte("version: 1 # one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hashed := func(token string) string {
		sum := sha256.Sum256([]byte(token))
		return hex.EncodeToString(sum[:])
	}
	form := regexp.MustCompile(`corral_[A-Za-z0-9_-]{43}`)

	// Printed with its entry, which can be taken as it is.
	code, stdout, stderr := u.run("config", "token", "--repos", "a,b c", "ci", "--tools", "runtime_execute")
	token, entry, _ := strings.Cut(stdout, "\n")
	if code != 0 || len(form.FindAllString(stdout+stderr, -1)) != 1 || form.FindString(token) != token {
		t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
	}
	c, err := config.Parse("printed", []byte("version: 1\n"+entry), config.LoadOptions{})
	if err != nil || len(c.Principals) != 1 {
		t.Fatalf("%v, %q", err, entry)
	}
	p, ok := c.Principals.Authenticate(token)
	if !ok || p.Name != "ci" || strings.Join(p.Repos, "|") != "a|b c" || strings.Join(p.Tools, "|") != "runtime_execute" {
		t.Errorf("%+v, %t", p, ok)
	}

	// Written, and not in clear.
	code, stdout, stderr = u.run("config", "token", "ci", "--write", file)
	token = strings.TrimSpace(stdout)
	if code != 0 || form.FindString(token) != token || form.MatchString(stderr) {
		t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
	}
	want := "version: 1 # one\nprincipals:\n  - name: ci\n    token_sha256: \"" + hashed(token) + "\"\n"
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%v, %q, want %q", err, got, want)
	}

	for args, says := range map[string]string{
		"config token":                        "a token is for one name",
		"config token a b":                    "a token is for one name",
		"config token a/b":                    "`name`: a name of 1 to 64 letters",
		"config token ci --write " + file:     `there is a principal "ci" already`,
		"config token x --tools a.b":          "`tools`: a tool's name",
		"config token x --write /proc/none/x": "no such file",
		"config token x --loud":               "hint: corral config --help",
	} {
		if code, stdout, stderr := u.run(strings.Fields(args)...); code != failure || stdout != "" || !strings.Contains(stderr, says) {
			t.Errorf("%s: exit code %d, %q, %q", args, code, stdout, stderr)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("changed: %v, %q", err, got)
	}
}
