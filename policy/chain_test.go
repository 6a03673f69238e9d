package policy

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corral/job"
)

// TestChain: each row breaks one rule with an otherwise valid request, and has the exact reason.
func TestChain(t *testing.T) {
	dir, installed := toolchain(t, "python3", "bash", "node", "python3.11")
	timeout := func(d time.Duration) func(*Rules, *job.Request) {
		return func(_ *Rules, r *job.Request) { r.Limits.Wall = d }
	}
	in := func(dir string) func(*Rules, *job.Request) { return func(_ *Rules, r *job.Request) { r.Dir = dir } }
	with := func(executable string) func(*Rules, *job.Request) {
		return func(_ *Rules, r *job.Request) { r.Executable = executable }
	}
	wants := func(repo string, w job.Workspace) func(*Rules, *job.Request) {
		return func(_ *Rules, r *job.Request) { r.Repo, r.Workspace = repo, &w }
	}
	only := func(asked string, list ...string) func(*Rules, *job.Request) {
		return func(rules *Rules, r *job.Request) { rules.Executables, r.Executable = list, asked }
	}
	for _, tt := range []struct {
		name   string
		change func(rules *Rules, r *job.Request)
		rule   string
		want   string // the first reason; without a rule, the program
	}{
		{"good", func(*Rules, *job.Request) {}, "", "python3"},
		{
			"disabled", func(rules *Rules, _ *job.Request) { rules.Enabled = false },
			"runtime.enabled", "Runtime execution is disabled in configuration (runtime.enabled = false)",
		},
		{"unknown repository", func(_ *Rules, r *job.Request) { r.Repo = "nope" }, "repo", "Repository nope not found"},
		{"no repository", func(_ *Rules, r *job.Request) { r.Repo = "" }, "repo", "The request names no repository"},
		{
			"runtime", func(rules *Rules, r *job.Request) { r.Runtime, rules.Runtimes = "node", []string{"python", "shell"} },
			"runtime.allowed", `Runtime "node" is not in the allowed runtimes list: [python, shell]`,
		},
		{
			"runtime, here", func(_ *Rules, r *job.Request) { r.Repo = "narrow" },
			"runtime.allowed", `Runtime "python" is not in the allowed runtimes list: [shell]`,
		},
		{
			"no runtimes", func(rules *Rules, _ *job.Request) { rules.Runtimes = nil },
			"runtime.allowed", `Runtime "python" is not in the allowed runtimes list: []`,
		},
		{"no such runtime", func(rules *Rules, r *job.Request) {
			rules.Runtimes, r.Runtime = append(rules.Runtimes, "cobol"), "cobol"
		}, "runtime.allowed", `Runtime "cobol" is not in the allowed runtimes list: [python, shell, node, cobol]`},
		{"a module as executable", with("pytest"), "executable.compatible", `Executable "pytest" is not compatible with runtime "python"`},
		{"executable of another", with("node"), "executable.compatible", `Executable "node" is not compatible with runtime "python"`},
		{"path of another", with("/usr/bin/node"), "executable.compatible", `Executable "/usr/bin/node" is not compatible with runtime "python"`},
		{"a file of the repository", with("./python3"), "executable.compatible", `Executable "./python3" is not compatible with runtime "python"`},
		{"NUL", with("/bin\x00/python3"), "executable.compatible", `Executable "/bin\x00/python3" is not compatible with runtime "python"`},
		{"a version", with("python3.11"), "", "python3.11"},
		{"a path", with(dir + "/python3"), "", "python3"},
		{"not on the list", only("", "bash"), "executable.allowed", `Executable "python3" is not in the allowed executables list`},
		{"asked, not on the list", only("python3.11", "python3"), "executable.allowed", `Executable "python3.11" is not in the allowed executables list`},
		{"an empty list", only("", []string{}...), "executable.allowed", `Executable "python3" is not in the allowed executables list`},
		{"another path", only("/usr/bin/python3", dir+"/python3"), "executable.allowed", `Executable "/usr/bin/python3" is not in the allowed executables list`},
		{"on the list", only("", "python3"), "", "python3"},
		{"path of a name on the list", only(dir+"/python3", "python3"), "", "python3"},
		{"path on the list", only("", dir+"/python3.11"), "", "python3.11"},
		{"path on the list, asked", only(dir+"/python3.11", dir+"/python3.11"), "", "python3.11"},
		{"name of a path on the list", only("python3.11", dir+"/python3.11"), "", "python3.11"},
		{"the second on the list", only("", "/nowhere/python3", dir+"/python3.11"), "", "python3.11"},
		{"neither code nor arguments", func(_ *Rules, r *job.Request) { r.Code, r.Args = nil, nil }, "arguments", "code or args is required"},
		{"NUL in the code", func(_ *Rules, r *job.Request) { r.Code = new("print(1)\x00print(2)") }, "arguments", "Code contains a NUL byte"},
		{"NUL in an argument", func(_ *Rules, r *job.Request) { r.Args = []string{"a", "b\x00"} }, "arguments", "Argument 2 contains a NUL byte"},
		{"environment", func(rules *Rules, _ *job.Request) {
			rules.RuntimeEnv = map[string]map[string]string{"python": {"X": "1", "PYTHONPATH": "lib"}}
		}, "environment", "Environment variables not in allowlist: [X]"},
		{"environment, two", func(rules *Rules, _ *job.Request) {
			rules.RuntimeEnv = map[string]map[string]string{"python": {"Y": "1", "X": ""}}
		}, "environment", "Environment variables not in allowlist: [X, Y]"},
		{"environment of another runtime", func(rules *Rules, _ *job.Request) {
			rules.RuntimeEnv = map[string]map[string]string{"node": {"X": "1"}}
		}, "", "python3"},
		{"above", in("../x"), "cwd", `Relative CWD "../x" contains path traversal or absolute path components`},
		{"above, hidden", in("a/b/../../.."), "cwd", `Relative CWD "a/b/../../.." contains path traversal or absolute path components`},
		{"down and up", in("a/.."), "cwd", `Relative CWD "a/.." contains path traversal or absolute path components`},
		{"absolute", in("/etc"), "cwd", `Relative CWD "/etc" contains path traversal or absolute path components`},
		{"NUL in the directory", in("a\x00b"), "cwd", `Relative CWD "a\x00b" contains path traversal or absolute path components`},
		{"a name with points", in("a/..b/c.."), "", "python3"},
		{"a name with a backslash", in(`a\..\b`), "", "python3"},
		{"timeout", timeout(2 * time.Minute), "timeout", "Requested timeout (120000ms) exceeds maximum (60000ms)"},
		{"timeout, a little", timeout(time.Minute + time.Millisecond), "timeout", "Requested timeout (60001ms) exceeds maximum (60000ms)"},
		{"no timeout at all", timeout(job.Unlimited), "timeout", "Requested timeout (unlimited) exceeds maximum (60000ms)"},
		{"all of the timeout", timeout(time.Minute), "", "python3"},
		{"negative", timeout(-2), "limits", "Requested limits: timeout: -2ns is not between 1ms and 8760h0m0s"},
		{
			"memory", func(_ *Rules, r *job.Request) { r.Limits.Memory = 1 << 30 },
			"limits", "Requested limits: memory: 1GiB is more than the operator allows, which is 512MiB; ask for less, or have the ceiling raised in the supervisor's configuration",
		},
		{"the operator", func(rules *Rules, _ *job.Request) { rules.Operator = verdict{Denied: true, Reason: "not today"} }, "rules", "not today"},
		{
			"the operator, silent", func(rules *Rules, _ *job.Request) { rules.Operator = verdict{Denied: true} },
			"rules", "The operator's rules failed: they denied without a reason",
		},
		{
			"the operator raises", func(rules *Rules, _ *job.Request) { rules.Operator = verdict{Limits: job.Limits{Memory: 257 << 20}} },
			"rules", "The operator's rules failed: they would raise a limit",
		},
		{
			"the operator lifts", func(rules *Rules, _ *job.Request) { rules.Operator = verdict{Limits: job.Limits{Wall: job.Unlimited}} },
			"rules", "The operator's rules failed: they would raise a limit",
		},
		{
			"the operator's nonsense", func(rules *Rules, _ *job.Request) { rules.Operator = verdict{Limits: job.Limits{Memory: -7}} },
			"rules", "The operator's rules failed: they would raise a limit",
		},
		{"several: the first counts", func(rules *Rules, r *job.Request) {
			rules.Operator, r.Dir, r.Executable = verdict{Denied: true, Reason: "x"}, "..", "node"
		}, "executable.compatible", `Executable "node" is not compatible with runtime "python"`},
		{"an absolute directory of a session", func(_ *Rules, r *job.Request) { r.Root, r.Dir = true, "/tmp" }, "", "python3"},
		{
			"a relative directory of a session", func(_ *Rules, r *job.Request) { r.Root = true },
			"cwd", `Relative CWD "src" contains path traversal or absolute path components`,
		},
		{"writing through", wants("app", job.Direct), "", "python3"},
		{"reading only", wants("app", job.ReadOnly), "", "python3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules, r := rules(), request()
			tt.change(&rules, &r)
			d := decide(t, rules, installed, r)
			if d.Rule != tt.rule || len(d.Hash) != 64 || len(d.Args) != 64 || (len(d.Code) == 64) != (r.Code != nil) {
				t.Errorf("%+v", d)
			}
			switch {
			case tt.rule != "" && (len(d.Reasons) == 0 || d.Reasons[0] != tt.want || d.Spec.Args != nil || d.Missing != ""):
				t.Errorf("%+v, want %q", d, tt.want)
			case tt.rule == "" && (len(d.Reasons) > 0 || len(d.Spec.Args) == 0 || d.Spec.Args[0] != filepath.Join(dir, tt.want)):
				t.Errorf("%+v, want %s", d, tt.want)
			}
		})
	}
}

// TestInsteadOf checks that the denial of a program that callers take for an executable names the form that works.
func TestInsteadOf(t *testing.T) {
	_, installed := toolchain(t, "python3", "bash", "node")
	for executable, want := range map[string]string{
		"pytest":          `Leave out executable and begin args with ["-m","pytest"], or use runtime "shell" with code "python3 -m pytest"`,
		"/usr/bin/pytest": `Leave out executable and begin args with ["-m","pytest"], or use runtime "shell" with code "python3 -m pytest"`,
		"npm":             `Use runtime "shell" with code "npm …"`,
		"node":            "",
	} {
		r := request()
		r.Executable = executable
		d := decide(t, rules(), installed, r)
		if got := strings.Join(d.Reasons[1:], "; "); got != want || d.Rule != "executable.compatible" {
			t.Errorf("%s: %q, want %q", executable, got, want)
		}
	}
}
