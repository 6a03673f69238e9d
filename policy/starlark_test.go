package policy

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/job"
	"corral/policy/runtimes"
	"corral/policy/starlark"
)

// program turns a request into a Starlark program, and lets rules allow it.
func program(rules *Rules, r *job.Request) {
	rules.Starlark.Enabled = true
	rules.Runtimes = append(slices.Clone(rules.Runtimes), job.Starlark)
	for i := range rules.Repos {
		rules.Repos[i].StarlarkWall = time.Minute + job.StarlarkGrace
		if list := rules.Repos[i].Runtimes; list != nil {
			rules.Repos[i].Runtimes = append(slices.Clone(list), job.Starlark)
		}
	}
	code := "emit(read_input())"
	r.Tool, r.Runtime, r.Code, r.Args, r.Dir = "starlark_run", job.Starlark, &code, nil, ""
}

// TestStarlarkSpec: the job of a Starlark program that is allowed. No setting of the repository widens it, and no
// program of the host takes part.
func TestStarlarkSpec(t *testing.T) {
	rules, r := rules(), request()
	program(&rules, &r)
	see := &asked{}
	rules.Operator = see
	rules.Repos[0].Profile, rules.Repos[0].Protect, rules.Executables = "default", job.ProtectAll, []string{}
	rules.RuntimeEnv = map[string]map[string]string{job.Starlark: {"TOKEN": "x"}}
	d := decide(t, rules, runtimes.Installed{}, r)
	limits := job.Defaults()
	limits.Memory, limits.PIDs, limits.Tmp, limits.TmpInodes, limits.OpenFiles = 256<<20, 32, 1<<20, 64, 64
	limits.Wall = time.Second + job.StarlarkGrace
	want := job.Spec{
		Repo: "/srv/app", Tool: job.ToolStarlark, Workspace: job.NoRepo, Profile: "strict", Limits: limits, Network: job.NoNetwork,
		Args:    []string{"starlark", "--output=65536", "--wall=1000", "--memory=268435456", "/tmp/job/code.star"},
		Files:   []job.File{{Path: "/tmp/job/code.star", Content: *r.Code}},
		Secrets: []string{"secret-value"},
	}
	if !d.Allowed() || d.Missing != "" || !reflect.DeepEqual(d.Spec, want) {
		t.Errorf("%+v\nwant %+v", d, want)
	}
	if d.Code != hexSum([]byte(*r.Code)) || d.Stdin != hexSum([]byte(r.Stdin)) || len(d.Hash) != 64 {
		t.Errorf("%+v", d)
	}
	if q := see.q; q.Runtime != "starlark" || q.Workspace != "none" || q.Profile != "strict" || len(q.Env) != 0 || q.Path != "" ||
		q.CodeBytes != len(*r.Code) || q.Limits != limits {
		t.Errorf("the operator's rules see %+v", q)
	}
}

// TestStarlarkLimits: the program's time is part of the job's; lowering one lowers both.
func TestStarlarkLimits(t *testing.T) {
	for _, tt := range []struct {
		name         string
		change       func(rules *Rules, r *job.Request)
		wall, inside time.Duration
		memory       int64
		output       string
	}{
		{"requested", func(_ *Rules, r *job.Request) { r.Limits.Wall, r.Output = time.Minute, 1<<20 }, time.Minute + job.StarlarkGrace, time.Minute, 256 << 20, "1048576"},
		{"minimum", func(_ *Rules, r *job.Request) { r.Limits.Wall, r.Output = time.Millisecond, 1 }, time.Millisecond + job.StarlarkGrace, time.Millisecond, 256 << 20, "1"},
		{"usual", func(_ *Rules, r *job.Request) { r.Usual.Wall = 5 * time.Second }, 5*time.Second + job.StarlarkGrace, 5 * time.Second, 256 << 20, "65536"},
		{"usual, above the ceiling", func(rules *Rules, r *job.Request) {
			r.Usual.Wall, rules.Repos[0].StarlarkWall = 5*time.Second, time.Second
		}, time.Second, time.Second - job.StarlarkGrace, 256 << 20, "65536"},
		{"configured memory", func(rules *Rules, _ *job.Request) { rules.Starlark.Memory = 64 << 20 }, time.Second + job.StarlarkGrace, time.Second, 64 << 20, "65536"},
		{"a ceiling of memory", func(rules *Rules, _ *job.Request) {
			rules.Repos[0].Ceilings.Memory, rules.Repos[0].Ceilings.PIDs = 32<<20, 8
			rules.Repos[0].Defaults.Memory = 0
		}, time.Second + job.StarlarkGrace, time.Second, 32 << 20, "65536"},
		{"lowered by rules", func(rules *Rules, _ *job.Request) {
			rules.Operator = verdict{Limits: job.Limits{Wall: 500 * time.Millisecond, Memory: 16 << 20}}
		}, 500 * time.Millisecond, 500*time.Millisecond - job.StarlarkGrace, 16 << 20, "65536"},
		{"lowered below the grace", func(rules *Rules, _ *job.Request) {
			rules.Operator = verdict{Limits: job.Limits{Wall: 100 * time.Millisecond}}
		}, 100 * time.Millisecond, 50 * time.Millisecond, 256 << 20, "65536"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules, r := rules(), request()
			program(&rules, &r)
			tt.change(&rules, &r)
			d := decide(t, rules, runtimes.Installed{}, r)
			want := starlark.Arguments(starlark.Bounds{Wall: tt.inside, Memory: tt.memory}, starlarkFile)
			want[1] = "--output=" + tt.output
			if !d.Allowed() || d.Spec.Limits.Wall != tt.wall || d.Spec.Limits.Memory != tt.memory || !slices.Equal(d.Spec.Args, want) {
				t.Errorf("%q, want %q; %+v", d.Spec.Args, want, d)
			}
		})
	}
}

// TestStarlarkChain: each row breaks one rule with a Starlark program, and has the exact reason.
func TestStarlarkChain(t *testing.T) {
	const nothing = "A Starlark program has an input, but no arguments, variables, terminal or file system"
	long, direct := strings.Repeat("#", starlark.MaxScript+1), job.Direct
	for _, tt := range []struct {
		name       string
		change     func(rules *Rules, r *job.Request)
		rule, want string
	}{
		{"switched off", func(rules *Rules, _ *job.Request) { rules.Starlark.Enabled = false }, "runtime.enabled", "Starlark is disabled in configuration (starlark.enabled = false)"},
		{"all runtimes switched off", func(rules *Rules, _ *job.Request) { rules.Enabled = false }, "runtime.enabled", "Runtime execution is disabled in configuration (runtime.enabled = false)"},
		{"unknown repository", func(_ *Rules, r *job.Request) { r.Repo = "nope" }, "repo", "Repository nope not found"},
		{"not on the list", func(rules *Rules, _ *job.Request) { rules.Runtimes = []string{"python"} }, "runtime.allowed", `Runtime "starlark" is not in the allowed runtimes list: [python]`},
		{"not on the repository's list", func(rules *Rules, r *job.Request) { r.Repo, rules.Repos[1].Runtimes = "narrow", []string{"shell"} }, "runtime.allowed", `Runtime "starlark" is not in the allowed runtimes list: [shell]`},
		{"a program of the host", func(_ *Rules, r *job.Request) { r.Executable = "python3" }, "executable.compatible", `Executable "python3" is not compatible with runtime "starlark"`},
		{"its own name", func(_ *Rules, r *job.Request) { r.Executable = "starlark" }, "executable.compatible", `Executable "starlark" is not compatible with runtime "starlark"`},
		{"no code", func(_ *Rules, r *job.Request) { r.Code = nil }, "arguments", "code is required"},
		{"long code", func(_ *Rules, r *job.Request) { r.Code = &long }, "arguments", "The program has 262145 bytes; the maximum is 262144"},
		{"long input", func(_ *Rules, r *job.Request) { r.Stdin = strings.Repeat("x", starlark.MaxInput+1) }, "arguments", "The input has 4194305 bytes; the maximum is 4194304"},
		{"much output", func(_ *Rules, r *job.Request) { r.Output = 1<<20 + 1 }, "arguments", "Requested output (1048577 bytes) is not between 1 and 1048576"},
		{"negative output", func(_ *Rules, r *job.Request) { r.Output = -1 }, "arguments", "Requested output (-1 bytes) is not between 1 and 1048576"},
		{"arguments", func(_ *Rules, r *job.Request) { r.Args = []string{"x"} }, "arguments", nothing},
		{"variables", func(_ *Rules, r *job.Request) { r.Env = map[string]*string{"X": nil} }, "arguments", nothing},
		{"streamed input", func(_ *Rules, r *job.Request) { r.Stdin, r.Streamed = "", true }, "arguments", nothing},
		{"a terminal", func(_ *Rules, r *job.Request) { r.Terminal.Rows = 1 }, "arguments", nothing},
		{"a root", func(_ *Rules, r *job.Request) { r.Root = true }, "arguments", nothing},
		{"the background", func(_ *Rules, r *job.Request) { r.Background = true }, "arguments", nothing},
		{"protection", func(_ *Rules, r *job.Request) { r.Protect = job.ProtectHooks }, "arguments", nothing},
		{"a directory", func(_ *Rules, r *job.Request) { r.Dir = "src" }, "cwd", `Relative CWD "src" cannot be used: a Starlark program has no access to the repository`},
		{"a workspace", func(_ *Rules, r *job.Request) { r.Workspace = &direct }, "workspace", `Workspace "direct" is refused: a Starlark program has no access to the repository`},
		{"more time", func(_ *Rules, r *job.Request) { r.Limits.Wall = time.Minute + 1 }, "timeout", "Requested timeout (60000ms) exceeds maximum (60000ms)"},
		{"unlimited", func(_ *Rules, r *job.Request) { r.Limits.Wall = job.Unlimited }, "timeout", "Requested timeout (unlimited) exceeds maximum (60000ms)"},
		{"no time at all", func(rules *Rules, _ *job.Request) { rules.Repos[0].StarlarkWall = job.StarlarkGrace }, "timeout", "Starlark programs cannot run in this repository: the maximum time of 150ms does not exceed the interpreter's grace period of 150ms"},
		{"no time, whatever is requested", func(rules *Rules, r *job.Request) {
			rules.Repos[0].StarlarkWall, r.Limits.Wall = 100*time.Millisecond, time.Minute
		}, "timeout", "Starlark programs cannot run in this repository: the maximum time of 100ms does not exceed the interpreter's grace period of 150ms"},
		{"few processes", func(rules *Rules, _ *job.Request) { rules.Repos[0].Ceilings.PIDs = 7 }, "limits", "The limits are too low for Starlark: 7 processes, and its interpreter needs 8"},
		{"few processes requested", func(_ *Rules, r *job.Request) { r.Limits.PIDs = 2 }, "limits", "The limits are too low for Starlark: 2 processes, and its interpreter needs 8"},
		{"little memory", func(rules *Rules, _ *job.Request) {
			rules.Repos[0].Ceilings.Memory, rules.Repos[0].Defaults.Memory = 16<<20-1, 0
		}, "limits", "The limits are too low for Starlark: 16777215 bytes of memory, and its interpreter needs 16777216"},
		{"little memory left by rules", func(rules *Rules, _ *job.Request) {
			rules.Operator = verdict{Limits: job.Limits{Memory: 8 << 20}}
		}, "rules", "The limits are too low for Starlark: 8388608 bytes of memory, and its interpreter needs 16777216"},
		{"few processes left by rules", func(rules *Rules, _ *job.Request) {
			rules.Operator = verdict{Limits: job.Limits{PIDs: 4}}
		}, "rules", "The limits are too low for Starlark: 4 processes, and its interpreter needs 8"},
		{"more memory", func(_ *Rules, r *job.Request) { r.Limits.Memory = 1 << 40 }, "limits", "Requested limits: memory: 1TiB is more than the operator allows, which is 512MiB; ask for less, or have the ceiling raised in the supervisor's configuration"},
		{"the operator", func(rules *Rules, _ *job.Request) { rules.Operator = verdict{Denied: true, Reason: "not today"} }, "rules", "not today"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules, r := rules(), request()
			program(&rules, &r)
			tt.change(&rules, &r)
			d := decide(t, rules, runtimes.Installed{}, r)
			if d.Rule != tt.rule || !slices.Equal(d.Reasons, []string{tt.want}) || d.Spec.Args != nil {
				t.Errorf("%s: %q, %q", d.Rule, d.Reasons, d.Spec.Args)
			}
		})
	}
}

// FuzzStarlark: whatever the operator's rules return, the job gets no more than without them, and its interpreter
// gets the same limits.
func FuzzStarlark(f *testing.F) {
	f.Add(uint64(1), int64(time.Second), int64(64<<10))
	f.Add(uint64(7), int64(-1), int64(0))
	f.Fuzz(func(t *testing.T, seed uint64, wall, output int64) {
		rules, r := rules(), request()
		program(&rules, &r)
		r.Limits.Wall, r.Output = time.Duration(wall), output
		without := decide(t, rules, runtimes.Installed{}, r)
		rules.Operator = verdict(loose{rand.New(rand.NewPCG(seed, 2))}.verdict())
		d := decide(t, rules, runtimes.Installed{}, r)
		if !d.Allowed() {
			return
		}
		s := d.Spec
		if !without.Allowed() || within(s.Limits, without.Spec.Limits) != nil || s.Workspace != job.NoRepo || s.Tool != job.ToolStarlark {
			t.Errorf("%+v, without %+v", d, without)
		}
		if s.Limits.Wall < time.Millisecond || len(s.Args) != 5 || s.Args[2] == "--wall=0" {
			t.Errorf("%+v", s)
		}
	})
}
