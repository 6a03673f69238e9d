package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/job"
)

func TestParseRun(t *testing.T) {
	repo := t.TempDir()
	o, err := parseRun([]string{
		"--repo", repo, "--workspace", "readonly", "--protect", "all", "--cwd", "a/../b", "--profile=strict", "--timeout", "1m30s", "--memory",
		"1.5GiB", "--cpus", "1.5", "--pids", "256", "--disk", "1g", "--inodes", "7", "--file-size", "1MB", "--nofile", "99",
		"--tmp", "1MiB", "--env", "A=1", "--env", "A=2", "-env", "B=", "--stdin", "--json", "--output-limit", "5", "prog",
		"--repo", "-x",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := job.Spec{
		Repo: repo, Dir: "b", Args: []string{"prog", "--repo", "-x"}, Workspace: job.ReadOnly, Profile: "strict",
		Protect: job.ProtectAll, Usual: true,
		Limits: job.Limits{
			Memory: 3 << 29, MilliCPUs: 1500, PIDs: 256, Wall: 90 * time.Second, Tmp: 1 << 20, Disk: 1 << 30, Inodes: 7,
			FileSize: 1_000_000, OpenFiles: 99,
		},
	}
	env := o.spec.Env
	o.spec.Env = nil
	if fmt.Sprint(o.spec) != fmt.Sprint(want) {
		t.Errorf("got %+v\nwant %+v", o.spec, want)
	}
	if !slices.Contains(env, "A=2") || slices.Contains(env, "A=1") || !slices.Contains(env, "B=") {
		t.Errorf("environment %q", env)
	}
	if !o.stdin || !o.json || o.tty || o.limit != 5 {
		t.Errorf("got %+v", o)
	}
}

func TestParseRunDefaults(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for args, limit := range map[string]int64{"true": -1, "-- true": -1, "--json true": 10 << 20} {
		o, err := parseRun(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		if o.limit != limit || o.spec.Repo != here || o.spec.Dir != "." || o.spec.Limits != (job.Limits{}) ||
			o.spec.Workspace != job.Direct || o.stdin || !slices.Equal(o.spec.Args, []string{"true"}) {
			t.Errorf("%s: %+v", args, o)
		}
	}
}

// TestParseRunNoRepo: a job with --workspace none still belongs to a repository.
func TestParseRunNoRepo(t *testing.T) {
	repo := t.TempDir()
	o, err := parseRun([]string{"--repo", repo, "--workspace", "none", "true"})
	if err != nil || o.spec.Workspace != job.NoRepo || o.spec.Repo != repo || o.spec.Dir != "." {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestParseRunRefuses: invalid values are refused before anything is started.
func TestParseRunRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	long := strings.Repeat("d/", 2100) + "d"
	for _, tt := range []struct{ args, want string }{
		{"", "no program given\nhint: "},
		{"--", "no program given"},
		{"--timeout 0 x", `invalid value "0" for --timeout: `},
		{"--timeout -1s x", "--timeout"},
		{"--timeout 1us x", "timeout"},
		{"--timeout 400h:1 x", "--timeout"},
		{"--timeout 9000h x", "timeout"},
		{"--timeout NaN x", "--timeout"},
		{"--timeout inf x", "--timeout"},
		{"--memory 0 x", "--memory"},
		{"--memory -1 x", "--memory"},
		{"--memory 1k x", "memory"},
		{"--memory 1XB x", "--memory"},
		{"--memory 99999999TiB x", "--memory"},
		{"--memory 2000TiB x", "memory"},
		{"--memory GiB x", "--memory"},
		{"--memory inf x", "--memory"},
		{"--cpus 0 x", "--cpus"},
		{"--protect hook x", "none, hooks or all"},
		{"--cpus NaN x", "--cpus"},
		{"--cpus 1e9 x", "--cpus"},
		{"--pids 0 x", "--pids"},
		{"--pids 1 x", "pids"},
		{"--pids 1.5 x", "--pids"},
		{"--pids 99999999999999999999 x", "--pids"},
		{"--pids 5000000 x", "pids"},
		{"--nofile 1 x", "open files"},
		{"--inodes x x", "--inodes"},
		{"--disk nothing x", "--disk"},
		{"--file-size 0.5 x", "--file-size"},
		{"--output-limit 0 x", "--output-limit"},
		{"--workspace overwrite x", `invalid value "overwrite" for --workspace: must be direct, overlay, readonly or none`},
		{"--repo= x", `invalid value "" for --repo: must not be empty`},
		{"--profile= x", "--profile"},
		{"--supervisor= x", "--supervisor"},
		{"--cwd .. x", "is not in the repository"},
		{"--cwd a/../../b x", "is not in the repository"},
		{"--cwd /etc x", "is not in the repository"},
		{"--cwd " + long + " x", "4201 bytes, more than 4095"},
		{"--env NOVALUE x", `--env "NOVALUE"`},
		{"--env =x x", `--env ""`},
		{"--env 1A=x x", `--env "1A"`},
		{"--env A-B=x x", `--env "A-B"`},
		{"--env-pass A=B x", `--env-pass "A=B"`},
		{"--env-pass= x", `--env-pass ""`},
		{"--json --tty x", "--json and --tty"},
		{"--tty --output-limit 1k x", "--output-limit and --tty"},
		{"--workspace none --cwd a x", "--cwd and --workspace none cannot be combined"},
		{"--protect hooks --workspace none x", "--protect and --workspace none cannot be combined"},
		{"--bogus x", "unknown option --bogus\nhint: corral run --help"},
		{"--timeout", "missing value after --timeout"},
		{"--json=maybe x", "json"},
	} {
		_, err := parseRun(strings.Fields(tt.args))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.60s: got %v, want an error with %q", tt.args, err, tt.want)
		}
	}
	for _, args := range []string{"--help", "-h", "--json --help", "--help x"} {
		if _, err := parseRun(strings.Fields(args)); !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// TestSecretsAreNotRepeated: an error names a variable, and not its value.
func TestSecretsAreNotRepeated(t *testing.T) {
	if _, err := parseRun([]string{"--env", "MY-TOKEN=hunter2", "x"}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

// TestDirectories: the default repository is the kernel's name of the working directory; one that is named is passed on
// as typed, because the supervisor opens it without following links.
func TestDirectories(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	real, link := filepath.Join(top, "real"), filepath.Join(top, "link")
	if err := errors.Join(os.MkdirAll(filepath.Join(real, "sub"), 0o755), os.Symlink("real", link)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ from, repo, cwd, wantRepo, wantDir string }{
		{top, real, "", real, "."},
		{top, real, real + "/sub", real, "sub"},
		{top, "real", real, real, "."},
		{top, "real/", "./sub/..", real, "."},
		{top, real, "..sub", real, "..sub"},
		{top, "link", "sub", link, "sub"}, // refused later, when it is opened
		{link, "", "sub", real, "sub"},    // the current directory is not a name that the caller chose
		{link, "sub", link + "/sub/deep", real + "/sub", "deep"},
		{link, "sub", real + "/sub/deep", real + "/sub", "deep"},
	} {
		t.Chdir(tt.from)
		o := &runOptions{cwd: tt.cwd, spec: job.Spec{Repo: tt.repo}}
		if err := o.directories(); err != nil || o.spec.Repo != tt.wantRepo || o.spec.Dir != tt.wantDir {
			t.Errorf("%+v: got %q, %q, %v", tt, o.spec.Repo, o.spec.Dir, err)
		}
	}
	o := &runOptions{cwd: link + "/sub", spec: job.Spec{Repo: real}}
	if err := o.directories(); err == nil {
		t.Errorf("a name of the repository that was not given: %q", o.spec.Dir)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("CORRAL_TEST_SECRET", "hunter2")
	t.Setenv("CORRAL_TEST_PASSED", "a b\nc")
	t.Setenv("TERM", "xterm")
	t.Setenv("TZ", "UTC")
	base := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin", "HOME=/home/job", "USER=job",
		"LOGNAME=job", "SHELL=/bin/sh", "TMPDIR=/tmp", "LANG=C.UTF-8",
	}
	for _, tt := range []struct {
		set, pass []string
		tty       bool
		want      []string // beyond base
	}{
		{nil, nil, false, []string{"TERM=dumb", "TZ=UTC"}},
		{nil, nil, true, []string{"TERM=xterm", "TZ=UTC"}},
		{nil, []string{"CORRAL_TEST_PASSED", "CORRAL_TEST_UNSET"}, false, []string{"TERM=dumb", "TZ=UTC", "CORRAL_TEST_PASSED=a b\nc"}},
		{
			[]string{"CORRAL_TEST_PASSED=set", "X=a=b"},
			[]string{"CORRAL_TEST_PASSED"},
			false,
			[]string{"TERM=dumb", "TZ=UTC", "CORRAL_TEST_PASSED=set", "X=a=b"},
		},
	} {
		got, err := environment(tt.set, tt.pass, tt.tty)
		if want := slices.Concat(base, tt.want); err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q, %v\nwant %q", got, err, want)
		}
	}
}
