package policy

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"corral/job"
)

// command turns a request into a command without a runtime.
func command(argv ...string) func(*Rules, *job.Request) {
	return func(_ *Rules, r *job.Request) {
		r.Runtime, r.Args, r.Code, r.Command = "", nil, nil, argv
	}
}

// TestCommand: the job of a command that is allowed.
func TestCommand(t *testing.T) {
	_, installed := toolchain(t, "bash")
	value := "of the client"
	rules, r := rules(), request()
	rules.Operator = verdict{Limits: job.Limits{PIDs: 7}}
	rules.Repos[0].Protect = job.ProtectHooks
	command("./build.sh", "", "-v")(&rules, &r)
	r.Stdin, r.Streamed = "", true
	r.Env = map[string]*string{"TOKEN": &value, "LANG": nil, "NEVER": nil, "PATH": &value}
	r.Terminal, r.Usual = job.Size{Rows: 3, Cols: 5}, job.Limits{Wall: 10 * time.Second}
	d := decide(t, rules, installed, r)
	s := d.Spec
	if !d.Allowed() || s.Repo != "/srv/app" || s.Dir != "src" || s.Profile != "strict" || s.Workspace != job.Direct ||
		s.Protect != job.ProtectHooks || s.Terminal != r.Terminal || !slices.Equal(s.Args, r.Command) || s.Files != nil ||
		s.Limits.Wall != 10*time.Second || s.Limits.PIDs != 7 || s.Limits.Memory != 256<<20 {
		t.Errorf("%+v", d)
	}
	want := []string{
		"CARGO_NET_OFFLINE=true", "GOPROXY=off", "GOTOOLCHAIN=local", "HOME=/home/job", "LOGNAME=job", "PATH=of the client",
		"PIP_BREAK_SYSTEM_PACKAGES=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_INDEX=1", "SHELL=/bin/sh",
		"TERM=xterm-256color", "TMPDIR=/tmp", "TOKEN=of the client", "TZ=Europe/Berlin", "USER=job", "npm_config_audit=false",
		"npm_config_fetch_retries=0", "npm_config_fund=false", "npm_config_update_notifier=false",
	}
	if !slices.Equal(s.Env, want) {
		t.Errorf("%q, want %q", s.Env, want)
	}
	if d.Code != "" || d.Stdin != job.StdinStreamed || d.Args != hexSum(appendTexts(nil, r.Command)) {
		t.Errorf("hashes %q, %q, %q", d.Code, d.Stdin, d.Args)
	}
	r.Env = nil
	if env := decide(t, rules, installed, r).Spec.Env; !slices.Contains(env, "PATH="+installed.Path()) || !slices.Contains(env, "LANG=C.UTF-8") {
		t.Errorf("%q", env)
	}
}

// TestCommandChain: each row breaks one rule with a command, and has the exact reason.
func TestCommandChain(t *testing.T) {
	_, installed := toolchain(t, "bash")
	system := "/usr/bin"
	if dirs := strings.Split(installed.Path(), ":"); !slices.Contains(dirs, system) {
		t.Fatalf("%q has no %s", dirs, system)
	}
	nul, path := "a\x00b", "/srv/app/bin"
	set := func(name string, value *string) func(*Rules, *job.Request) {
		return func(_ *Rules, r *job.Request) { r.Env = map[string]*string{name: value} }
	}
	list := func(names ...string) func(*Rules, *job.Request) {
		return func(rules *Rules, _ *job.Request) { rules.Executables = names }
	}
	in := func(repo string, w job.Workspace) func(*Rules, *job.Request) {
		return func(_ *Rules, r *job.Request) { r.Repo, r.Workspace = repo, &w }
	}
	nothing := func(*Rules, *job.Request) {}
	many := make(map[string]*string)
	for i := range maxWords + 1 {
		many["V"+strconv.Itoa(i)] = nil
	}
	for _, tt := range []struct {
		name       string
		argv       []string
		change     func(*Rules, *job.Request)
		rule, want string
	}{
		{"good", []string{"make"}, nothing, "", ""},
		{"where no runtime may be used", []string{"make"}, func(rules *Rules, _ *job.Request) { rules.Runtimes = nil }, "", ""},
		{"disabled", []string{"make"}, func(rules *Rules, _ *job.Request) { rules.Enabled = false }, "runtime.enabled", "Runtime execution is disabled in configuration (runtime.enabled = false)"},
		{"unknown repository", []string{"make"}, func(_ *Rules, r *job.Request) { r.Repo = "nope" }, "repo", "Repository nope not found"},
		{"with a runtime", []string{"make"}, func(_ *Rules, r *job.Request) { r.Runtime = "python" }, "runtime.allowed", "A command cannot be combined with a runtime, executable, arguments or code"},
		{"with arguments", []string{"make"}, func(_ *Rules, r *job.Request) { r.Args = []string{"x"} }, "runtime.allowed", "A command cannot be combined with a runtime, executable, arguments or code"},
		{"not on the list", []string{"make"}, list("bash"), "executable.allowed", `Executable "make" is not in the allowed executables list`},
		{"on the list", []string{"bash"}, list("bash"), "", ""},
		{"on the list, in another PATH", []string{"bash"}, func(rules *Rules, r *job.Request) {
			rules.Executables, r.Env = []string{"bash"}, map[string]*string{"PATH": &path}
		}, "executable.allowed", `Executable "bash" is not in the allowed executables list`},
		{"path of a name on the list", []string{system + "/bash"}, list("bash"), "", ""},
		{"a name on the list, in the repository", []string{"/srv/app/bash"}, list("bash"), "executable.allowed", `Executable "/srv/app/bash" is not in the allowed executables list`},
		{"relative to the repository", []string{"./bash"}, list("bash", "./bash"), "executable.allowed", `Executable "./bash" is not in the allowed executables list`},
		{"path on the list", []string{"/opt/x"}, list("/opt/x"), "", ""},
		{"name of a path on the list", []string{"x"}, list("/opt/x"), "executable.allowed", `Executable "x" is not in the allowed executables list`},
		{"an empty list", []string{"bash"}, list([]string{}...), "executable.allowed", `Executable "bash" is not in the allowed executables list`},
		{"NUL", []string{"bash", "-c", "a\x00"}, nothing, "arguments", "Argument 2 contains a NUL byte"},
		{"NUL in the program", []string{"ba\x00sh"}, nothing, "arguments", "Argument 0 contains a NUL byte"},
		{"many arguments", make([]string, maxWords+1), nothing, "arguments", "Arguments: 10001 with 10001 bytes in total; the maximum is 10000, and 2097152 bytes"},
		{"long arguments", []string{strings.Repeat("x", maxBytes)}, nothing, "arguments", "Arguments: 1 with 2097153 bytes in total; the maximum is 10000, and 2097152 bytes"},
		{"empty name of a variable", []string{"make"}, set("", nil), "environment", `Environment variable "" cannot be set`},
		{"two names in one", []string{"make"}, set("A=B", nil), "environment", `Environment variable "A=B" cannot be set`},
		{"NUL in a value", []string{"make"}, set("A", &nul), "environment", `Environment variable "A" cannot be set`},
		{"many variables", []string{"make"}, func(_ *Rules, r *job.Request) { r.Env = many }, "environment", "Environment: 10001 variables with 68898 bytes in total; the maximum is 10000, and 2097152 bytes"},
		{"directory", []string{"make"}, func(_ *Rules, r *job.Request) { r.Dir = ".." }, "cwd", `Relative CWD ".." contains path traversal or absolute path components`},
		{"direct, in a read-only repository", []string{"make"}, in("narrow", job.Direct), "workspace", `Workspace "direct" is refused: the repository is configured as "readonly"`},
		{"a layer, in a read-only repository", []string{"make"}, in("narrow", job.Overlay), "workspace", `Workspace "overlay" is refused: the repository is configured as "readonly"`},
		{"timeout", []string{"make"}, func(_ *Rules, r *job.Request) { r.Limits.Wall = job.Unlimited }, "timeout", "Requested timeout (unlimited) exceeds maximum (60000ms)"},
		{"builtin", []string{"edit"}, func(rules *Rules, r *job.Request) {
			rules.Executables, r.Builtin = []string{"bash"}, job.ToolEdit
		}, "", ""},
		{"builtin that clients cannot request", []string{"changes"}, func(_ *Rules, r *job.Request) { r.Builtin = job.ToolChanges }, "runtime.allowed", `Program "changes" cannot be requested`},
		{"builtin with a terminal", []string{"edit"}, func(_ *Rules, r *job.Request) {
			r.Builtin, r.Terminal = job.ToolEdit, job.Size{Rows: 1, Cols: 1}
		}, "runtime.allowed", `Program "edit" has no terminal, and no root file system of its own`},
		{"builtin with a root", []string{"edit"}, func(_ *Rules, r *job.Request) {
			r.Builtin, r.Root, r.Dir = job.ToolEdit, true, "/"
		}, "runtime.allowed", `Program "edit" has no terminal, and no root file system of its own`},
		{"the operator", []string{"make"}, func(rules *Rules, _ *job.Request) { rules.Operator = verdict{Denied: true, Reason: "not today"} }, "rules", "not today"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules, r := rules(), request()
			command(tt.argv...)(&rules, &r)
			tt.change(&rules, &r)
			d := decide(t, rules, installed, r)
			if d.Allowed() && d.Spec.Tool != r.Builtin {
				t.Errorf("runs %q, want %q", d.Spec.Tool, r.Builtin)
			}
			if d.Rule != tt.rule || tt.rule != "" && !slices.Equal(d.Reasons, []string{tt.want}) || (d.Spec.Args != nil) != (tt.rule == "") {
				t.Errorf("%s: %q, %q", d.Rule, d.Reasons, d.Spec.Args)
			}
		})
	}
}

// TestWorkspace: the stricter of the requested and the configured workspace applies.
func TestWorkspace(t *testing.T) {
	_, installed := toolchain(t, "bash")
	for _, tt := range []struct{ configured, asked, want job.Workspace }{
		{job.Direct, job.Direct, job.Direct},
		{job.Direct, job.Overlay, job.Overlay},
		{job.Direct, job.ReadOnly, job.ReadOnly},
		{job.Overlay, job.Direct, job.Overlay},
		{job.Overlay, job.Overlay, job.Overlay},
		{job.Overlay, job.ReadOnly, job.ReadOnly},
		{job.ReadOnly, job.ReadOnly, job.ReadOnly},
	} {
		rules, r := rules(), request()
		command("make")(&rules, &r)
		rules.Repos[0].Workspace, rules.Repos[0].Protect = tt.configured, job.ProtectHooks
		r.Workspace, r.Protect = &tt.asked, job.ProtectAll
		operator := &asked{}
		rules.Operator = operator
		d := decide(t, rules, installed, r)
		if !d.Allowed() || d.Spec.Workspace != tt.want || operator.q.Workspace != tt.want.String() {
			t.Errorf("%v of %v: %v, rules see %s: %q", tt.asked, tt.configured, d.Spec.Workspace, operator.q.Workspace, d.Reasons)
		}
		if want := map[job.Workspace]job.Protection{job.Direct: job.ProtectAll}[tt.want]; d.Spec.Protect != want {
			t.Errorf("%v: protects %v", tt.want, d.Spec.Protect)
		}
	}
}

// TestRootWorkspace: a request with a root file system of its own changes the real repository only if the operator
// allows it.
func TestRootWorkspace(t *testing.T) {
	_, installed := toolchain(t, "bash")
	for _, tt := range []struct {
		repo       job.Workspace
		configured *job.Workspace
		asked      *job.Workspace
		want       job.Workspace
	}{
		{job.Direct, nil, nil, job.Overlay},
		{job.Overlay, nil, nil, job.Overlay},
		{job.ReadOnly, nil, nil, job.ReadOnly},
		{job.Direct, new(job.Direct), nil, job.Direct},
		{job.Direct, new(job.Overlay), nil, job.Overlay},
		{job.Direct, new(job.ReadOnly), nil, job.ReadOnly},
		{job.ReadOnly, new(job.Direct), nil, job.ReadOnly},
		{job.Direct, nil, new(job.Direct), job.Overlay},
		{job.Direct, new(job.Direct), new(job.Overlay), job.Overlay},
		{job.Direct, nil, new(job.ReadOnly), job.ReadOnly},
	} {
		rules, r := rules(), request()
		command("make")(&rules, &r)
		r.Root, r.Dir, r.Workspace = true, "/", tt.asked
		rules.Repos[0].Workspace, rules.Repos[0].RootWorkspace = tt.repo, tt.configured
		if d := decide(t, rules, installed, r); !d.Allowed() || d.Spec.Workspace != tt.want {
			t.Errorf("repository %v, configured %v, asked %v: %v, want %v: %q", tt.repo, tt.configured, tt.asked, d.Spec.Workspace, tt.want, d.Reasons)
		}
	}
	rules, r := rules(), request()
	command("make")(&rules, &r)
	r.Root, r.Dir, r.Workspace, rules.Repos[0].RootWorkspace = true, "/", new(job.Overlay), new(job.ReadOnly)
	if d := decide(t, rules, installed, r); d.Allowed() {
		t.Errorf("a layer was allowed where RootWorkspace is ReadOnly: %+v", d.Spec)
	}
}

// TestCommandQuery: the operator's rules see a command as executable and arguments, without a runtime.
func TestCommandQuery(t *testing.T) {
	_, installed := toolchain(t, "bash")
	operator := &asked{}
	rules, r := rules(), request()
	rules.Operator = operator
	command("git", "push", "--force")(&rules, &r)
	r.Tool, r.Stdin, r.Streamed = "command/exec", "", true
	decide(t, rules, installed, r)
	q := operator.q
	if q.Tool != "command/exec" || q.Runtime != "" || q.Executable != "git" || q.Path != "" || !slices.Equal(q.Args, []string{"push", "--force"}) ||
		q.Stdin != job.StdinStreamed || q.StdinBytes != -1 || q.Code != "" || q.CodeBytes != 0 || q.Workspace != "direct" {
		t.Errorf("%+v", q)
	}
}
