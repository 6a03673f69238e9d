package policy

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/job"
	"corral/policy/runtimes"
	"corral/policy/starlark"
)

// toolchain creates a directory of programs with these names, and returns it with an Installed that finds no other
// program of these names.
func toolchain(t testing.TB, names ...string) (dir string, i runtimes.Installed) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir, runtimes.Find(runtimes.Places{Toolchains: []string{dir}})
}

// verdict is an Operator that always returns itself.
type verdict starlark.Verdict

func (v verdict) Decide(context.Context, starlark.Query) starlark.Verdict { return starlark.Verdict(v) }

// asked is an Operator that allows everything and records the query.
type asked struct{ q starlark.Query }

func (a *asked) Decide(_ context.Context, q starlark.Query) starlark.Verdict {
	a.q = q
	return starlark.Verdict{}
}

func rules() Rules {
	return Rules{
		Enabled: true, Runtimes: []string{"python", "shell", "node"}, Rootfs: "host",
		Environ: []string{"LANG=de_DE", "TOKEN=secret-value", "OTHER=unseen-value", "TZ=Europe/Berlin", "HOME=/root", "TOKEN=second"},
		Repos: []Repo{{
			ID: "app", Path: "/srv/app", Env: []string{"TOKEN", "PYTHONPATH", "HOME", "UNSET"}, Profile: "strict",
			Defaults: job.Limits{Memory: 256 << 20, Wall: 30 * time.Second},
			Ceilings: job.Limits{Memory: 512 << 20, Wall: time.Minute},
		}, {
			ID: "narrow", Path: "/srv/narrow", Runtimes: []string{"shell"}, Workspace: job.ReadOnly, Profile: "default",
		}},
	}
}

func request() job.Request {
	code := "print(1)"
	return job.Request{
		Tool: "runtime_execute", Principal: "user:ada", Session: "s", ID: strings.Repeat("0", 32), Repo: "app", Runtime: "python",
		Args: []string{"a", "b"}, Code: &code, Stdin: "input", Dir: "src",
	}
}

func decide(t testing.TB, rules Rules, i Installed, r job.Request) job.Decision {
	t.Helper()
	p, err := New(rules, i)
	if err != nil {
		t.Fatal(err)
	}
	d, err := p.Decide(t.Context(), &r)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSpec(t *testing.T) {
	dir, installed := toolchain(t, "python3")
	rules, r := rules(), request()
	rules.RuntimeEnv = map[string]map[string]string{"python": {"PYTHONPATH": "lib", "TOKEN": "of python"}, "node": {"X": ""}}
	rules.Operator = verdict{Limits: job.Limits{PIDs: 7, Wall: time.Second}}
	r.Dir, r.Limits.Wall = "./a//b/.", 10*time.Second
	d := decide(t, rules, installed, r)
	s := d.Spec
	if !d.Allowed() || s.Repo != "/srv/app" || s.Dir != "a/b" || s.Profile != "strict" || s.Workspace != job.Direct {
		t.Fatalf("%+v", d)
	}
	file := runtimes.Dir + "/code.py"
	if want := []string{dir + "/python3", runtimes.Dir + "/launch.py", "a", "b"}; !slices.Equal(s.Args, want) ||
		len(s.Files) != 2 || s.Files[0] != (job.File{Path: file, Content: "print(1)"}) {
		t.Errorf("%q, %+v", s.Args, s.Files)
	}
	want := job.Defaults()
	want.Memory, want.Wall, want.PIDs = 256<<20, time.Second, 7
	if s.Limits != want {
		t.Errorf("%+v, want %+v", s.Limits, want)
	}
	wantEnv := []string{
		"CARGO_NET_OFFLINE=true", "GOPROXY=off", "GOTOOLCHAIN=local", "HOME=/home/job", "LANG=C.UTF-8", "LOGNAME=job", "PATH=" + installed.Path(),
		"PIP_BREAK_SYSTEM_PACKAGES=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_INDEX=1",
		"PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=lib", "PYTHONUNBUFFERED=1", "SHELL=/bin/sh", "TERM=dumb", "TMPDIR=/tmp",
		"TOKEN=of python", "TZ=Europe/Berlin", "USER=job", "npm_config_audit=false",
		"npm_config_fetch_retries=0", "npm_config_fund=false", "npm_config_update_notifier=false",
	}
	if !slices.Equal(s.Env, wantEnv) {
		t.Errorf("%q, want %q", s.Env, wantEnv)
	}
	if err := s.Limits.Within(rules.Repos[0].Ceilings); err != nil {
		t.Error(err)
	}
}

// TestSharedBytecode checks that Python keeps what it compiles in HOME if the jobs of a session share that, and otherwise writes none.
func TestSharedBytecode(t *testing.T) {
	_, installed := toolchain(t, "python3", "bash")
	rules, r := rules(), request()
	for _, share := range []bool{false, true} {
		r.Share = share
		env := decide(t, rules, installed, r).Spec.Env
		if slices.Contains(env, "PYTHONPYCACHEPREFIX=/home/job/.cache/pycache") != share || slices.Contains(env, "PYTHONDONTWRITEBYTECODE=1") == share {
			t.Errorf("share %v: %q", share, env)
		}
	}
}

// TestCaches checks that a job has the variables for download caches, that those of the configuration replace them, and that a job
// with a root file system of its own, which shows no toolchains, has none.
func TestCaches(t *testing.T) {
	_, installed := toolchain(t, "python3", "bash")
	dir := t.TempDir() + "/cache/download"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	installed = runtimes.Find(runtimes.Places{Toolchains: append([]string{dir}, strings.Split(installed.Path(), ":")[0])})
	own, set := func(*Rules, *job.Request) {}, "GOPROXY=file://"+dir+",off"
	for _, tt := range []struct {
		name   string
		change func(*Rules, *job.Request)
		want   string
	}{
		{"code", own, set},
		{"a command", command("bash"), set},
		{"the operator's", func(r *Rules, _ *job.Request) {
			r.Environ, r.Repos[0].Env = append(r.Environ, "GOPROXY=http://proxy"), append(r.Repos[0].Env, "GOPROXY")
		}, "GOPROXY=http://proxy"},
		{"a root of its own", func(_ *Rules, r *job.Request) { r.Root, r.Dir = true, "/" }, "GOPROXY=off"},
	} {
		rules, r := rules(), request()
		tt.change(&rules, &r)
		if d := decide(t, rules, installed, r); !slices.Contains(d.Spec.Env, tt.want) {
			t.Errorf("%s: %q has no %q", tt.name, d.Spec.Env, tt.want)
		}
	}
}

// TestLimits: a limit is the request's, or else the repository's default, or else the built-in default; ceilings
// lower defaults.
func TestLimits(t *testing.T) {
	_, installed := toolchain(t, "python3")
	for _, tt := range []struct {
		name                     string
		asked, defaults, ceiling job.Limits
		want                     job.Limits // zero fields stand for the built-in defaults
	}{
		{"nothing", job.Limits{}, job.Limits{}, job.Limits{}, job.Limits{}},
		{"asked", job.Limits{PIDs: 9}, job.Limits{PIDs: 5}, job.Limits{PIDs: 9}, job.Limits{PIDs: 9}},
		{"default", job.Limits{}, job.Limits{PIDs: 5}, job.Limits{PIDs: 9}, job.Limits{PIDs: 5}},
		{"ceiling below the built-in default", job.Limits{}, job.Limits{}, job.Limits{Wall: time.Minute, Memory: 1 << 20 * 64}, job.Limits{Wall: time.Minute, Memory: 1 << 20 * 64}},
	} {
		rules := rules()
		rules.Repos[0].Defaults, rules.Repos[0].Ceilings = tt.defaults, tt.ceiling
		r := request()
		r.Limits = tt.asked
		if got := decide(t, rules, installed, r).Spec.Limits; got != tt.want.Or(job.Defaults()) {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

// TestMissing: a missing program does not deny the request, but all other rules apply.
func TestMissing(t *testing.T) {
	r := request()
	d := decide(t, rules(), runtimes.Installed{}, r)
	if !d.Allowed() || !strings.Contains(d.Missing, "no program that runs python is on this host") || d.Spec.Args != nil || len(d.Hash) != 64 {
		t.Errorf("%+v", d)
	}
	r.Dir = ".."
	if d := decide(t, rules(), runtimes.Installed{}, r); d.Rule != "cwd" || d.Missing != "" {
		t.Errorf("%+v", d)
	}
	rules := rules()
	rules.Executables = []string{"python3", "/nowhere/python3"}
	if d := decide(t, rules, runtimes.Installed{}, request()); !d.Allowed() || d.Missing == "" {
		t.Errorf("%+v", d)
	}
}

// TestQuery: the operator's rules see the request's properties, without its code and input.
func TestQuery(t *testing.T) {
	dir, installed := toolchain(t, "python3")
	rules, r, operator := rules(), request(), &asked{}
	rules.Operator = operator
	decide(t, rules, installed, r)
	q := operator.q
	if q.Executable != "python3" || q.Path != dir+"/python3" || q.CodeBytes != 8 || q.StdinBytes != 5 || q.Dir != "src" ||
		q.Repo != "app" || q.Principal != "user:ada" || q.Session != "s" || q.Tool != "runtime_execute" || q.Runtime != "python" ||
		q.Workspace != "direct" || q.Profile != "strict" || q.Limits.Memory != 256<<20 || q.Limits.Wall != 30*time.Second ||
		q.Code != hexSum([]byte("print(1)")) || !slices.Equal(q.Args, r.Args) {
		t.Errorf("%+v", q)
	}
	if got := decide(t, rules, installed, r).Spec.Env; !slices.EqualFunc(got, q.Env, func(pair, name string) bool { return strings.HasPrefix(pair, name+"=") }) {
		t.Errorf("names %q of %q", q.Env, got)
	}
	r.Code = nil
	decide(t, rules, installed, r)
	if operator.q.Code != "" || operator.q.CodeBytes != 0 {
		t.Errorf("%+v", operator.q)
	}
}

// TestEnvironmentNamesIndependentOfCode: a runtime's variables have the same names with and without code, so the
// operator's rules see the names that the job gets.
func TestEnvironmentNamesIndependentOfCode(t *testing.T) {
	installed := runtimes.Find(runtimes.Places{})
	rules := rules()
	operator := &asked{}
	rules.Runtimes, rules.Operator = runtimes.Runtimes(), operator
	for _, name := range runtimes.Runtimes() {
		r := request()
		row, _ := runtimes.Lookup(name)
		r.Runtime, r.Code = name, &row.Hello
		d := decide(t, rules, installed, r)
		if d.Missing != "" {
			continue
		}
		if len(d.Spec.Env) != len(operator.q.Env) {
			t.Errorf("%s: names %q, environment %q", name, operator.q.Env, d.Spec.Env)
		}
	}
}

func TestRepo(t *testing.T) {
	p, err := New(rules(), runtimes.Installed{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		may  []string
		id   string
		want bool
	}{
		{nil, "app", true},
		{nil, "nope", false},
		{nil, "", false},
		{[]string{}, "app", false},
		{[]string{"app"}, "app", true},
		{[]string{"narrow"}, "app", false},
		{[]string{"nope"}, "nope", false},
		{[]string{""}, "", false},
	} {
		if r, ok := p.Repo(tt.may, tt.id); ok != tt.want || ok && r.ID != tt.id || !ok && r.Path != "" {
			t.Errorf("%q of %q: %+v, %v", tt.id, tt.may, r, ok)
		}
	}
}

func TestSecrets(t *testing.T) {
	rules := rules()
	rules.Environ = []string{"LONG=a-long-secret", "SHORT=1234567", "JUST=12345678", "OTHER=unseen-value", "TERM=xterm-256color", "HOME=/home/somebody", "SAME=a-long-secret"}
	rules.Repos[0].Env = []string{"LONG", "SHORT", "SAME", "TERM", "HOME", "UNSET"}
	rules.Repos[1].Env = []string{"JUST", "LONG"}
	rules.RuntimeEnv = map[string]map[string]string{"python": {"LONG": "of-python-alone"}}
	p, err := New(rules, runtimes.Installed{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.Secrets(), []string{"of-python-alone", "a-long-secret", "12345678"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNewRefuses(t *testing.T) {
	for name, change := range map[string]func(r *Rules){
		"duplicate id":  func(r *Rules) { r.Repos = append(r.Repos, r.Repos[0]) },
		"no id":         func(r *Rules) { r.Repos[0].ID = "" },
		"relative":      func(r *Rules) { r.Repos[0].Path = "srv" },
		"above ceiling": func(r *Rules) { r.Repos[0].Defaults.Memory = 1 << 40 },
		"a name with =": func(r *Rules) { r.Repos[0].Env = []string{"A=B"} },
		"an empty name": func(r *Rules) { r.RuntimeEnv = map[string]map[string]string{"c": {"": "x"}} },
	} {
		rules := rules()
		change(&rules)
		if _, err := New(rules, runtimes.Installed{}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	p, err := New(Rules{}, runtimes.Installed{})
	if err != nil {
		t.Fatal(err)
	}
	r := request()
	if d, err := p.Decide(t.Context(), &r); err != nil || d.Allowed() {
		t.Errorf("no rules at all: %+v, %v", d, err)
	}
}

// TestExplain: an explanation has the same decision as Decide.
func TestExplain(t *testing.T) {
	_, installed := toolchain(t, "python3")
	for _, dir := range []string{"src", ".."} {
		rules, r := rules(), request()
		r.Dir = dir
		p, err := New(rules, installed)
		if err != nil {
			t.Fatal(err)
		}
		e := p.Explain(t.Context(), &r)
		if d := decide(t, rules, installed, r); d.Hash != e.Decision.Hash || d.Rule != e.Decision.Rule {
			t.Errorf("%+v, decided %+v", e.Decision, d)
		}
		denied := e.Decision.Rule != ""
		for i, s := range e.Steps {
			want := Passed
			switch at := slices.IndexFunc(steps, func(s step) bool { return s.rule == "cwd" }); {
			case denied && i == at:
				want = Against
			case denied && i > at:
				want = Skipped
			}
			if s.Rule != steps[i].rule || s.Reason == "" || s.Outcome != want || (want == Against) != (len(s.Against) > 0) {
				t.Errorf("step %d: %+v", i, s)
			}
		}
		if denied != (e.Limits == job.Limits{}) || len(e.Env) == 0 || e.Program == "" {
			t.Errorf("%+v", e)
		}
	}
}

// TestSecretsOfDenied checks that the decision about a denied request has the secrets, too: the audit log may have its program.
func TestSecretsOfDenied(t *testing.T) {
	_, installed := toolchain(t, "python3")
	rules, r := rules(), request()
	rules.Operator = verdict{Denied: true, Reason: "x"}
	rules.RuntimeEnv = map[string]map[string]string{"python": {"TOKEN": "secret-value"}}
	if d := decide(t, rules, installed, r); d.Allowed() || !slices.Equal(d.Spec.Secrets, []string{"secret-value"}) {
		t.Errorf("%+v", d)
	}
}
