package policy

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"corral/job"
	"corral/policy/runtimes"
	"corral/policy/starlark"
)

// TestHashCovers: each of these changes the hash, and no two of them produce the same one.
func TestHashCovers(t *testing.T) {
	_, installed := toolchain(t, "python3", "python", "bash", "python3.11")
	_, elsewhere := toolchain(t, "python3")
	hashes := map[string]string{}
	try := func(what string, i Installed, change func(rules *Rules, r *job.Request)) {
		t.Helper()
		rules, r := rules(), request()
		change(&rules, &r)
		h := decide(t, rules, i, r).Hash
		if other, twice := hashes[h]; twice {
			t.Errorf("%s has the same hash as %s", what, other)
		}
		hashes[h] = what
	}
	code := "print(2)"
	empty := ""
	for what, change := range map[string]func(rules *Rules, r *job.Request){
		"nothing":               func(*Rules, *job.Request) {},
		"principal":             func(_ *Rules, r *job.Request) { r.Principal = "user:bob" },
		"repository":            func(rules *Rules, r *job.Request) { rules.Repos[0].ID, r.Repo = "app2", "app2" },
		"unknown repository":    func(_ *Rules, r *job.Request) { r.Repo = "nope" },
		"path of repository":    func(rules *Rules, _ *job.Request) { rules.Repos[0].Path = "/srv/app2" },
		"workspace":             func(rules *Rules, _ *job.Request) { rules.Repos[0].Workspace = job.ReadOnly },
		"profile":               func(rules *Rules, _ *job.Request) { rules.Repos[0].Profile = "default" },
		"rootfs":                func(rules *Rules, _ *job.Request) { rules.Rootfs = "image" },
		"runtime":               func(_ *Rules, r *job.Request) { r.Runtime = "shell" },
		"executable":            func(_ *Rules, r *job.Request) { r.Executable = "python3.11" },
		"the default by name":   func(_ *Rules, r *job.Request) { r.Executable = "python3" },
		"code":                  func(_ *Rules, r *job.Request) { r.Code = &code },
		"empty code":            func(_ *Rules, r *job.Request) { r.Code = &empty },
		"no code":               func(_ *Rules, r *job.Request) { r.Code = nil },
		"argument":              func(_ *Rules, r *job.Request) { r.Args = []string{"a", "c"} },
		"one argument":          func(_ *Rules, r *job.Request) { r.Args = []string{"ab"} },
		"three arguments":       func(_ *Rules, r *job.Request) { r.Args = []string{"a", "b", ""} },
		"no arguments":          func(_ *Rules, r *job.Request) { r.Args = nil },
		"input":                 func(_ *Rules, r *job.Request) { r.Stdin = "other" },
		"no input":              func(_ *Rules, r *job.Request) { r.Stdin = "" },
		"variable":              func(rules *Rules, _ *job.Request) { rules.Repos[0].Env = append(rules.Repos[0].Env, "OTHER") },
		"directory":             func(_ *Rules, r *job.Request) { r.Dir = "src2" },
		"no directory":          func(_ *Rules, r *job.Request) { r.Dir = "" },
		"refused directory":     func(_ *Rules, r *job.Request) { r.Dir = ".." },
		"requested default":     func(_ *Rules, r *job.Request) { r.Limits.Wall = 30 * time.Second },
		"requested less":        func(_ *Rules, r *job.Request) { r.Limits.Wall = 29 * time.Second },
		"another default":       func(rules *Rules, _ *job.Request) { rules.Repos[0].Defaults.Wall = 29 * time.Second },
		"lowered":               func(rules *Rules, _ *job.Request) { rules.Operator = verdict{Limits: job.Limits{PIDs: 5}} },
		"denied":                func(rules *Rules, _ *job.Request) { rules.Operator = verdict{Denied: true, Reason: "x"} },
		"other denial reason":   func(rules *Rules, _ *job.Request) { rules.Operator = verdict{Denied: true, Reason: "y"} },
		"disabled":              func(rules *Rules, _ *job.Request) { rules.Enabled = false },
		"streamed input":        func(_ *Rules, r *job.Request) { r.Stdin, r.Streamed = "", true },
		"command":               command("true"),
		"command of two":        command("true", "x"),
		"no such runtime":       func(_ *Rules, r *job.Request) { r.Runtime = "" },
		"client variable":       func(_ *Rules, r *job.Request) { r.Env = map[string]*string{"X": &empty} },
		"client variable value": func(_ *Rules, r *job.Request) { r.Env = map[string]*string{"X": &code} },
		"client variable unset": func(_ *Rules, r *job.Request) { r.Env = map[string]*string{"X": nil} },
		"terminal":              func(_ *Rules, r *job.Request) { r.Terminal.Rows = 1 },
		"requested workspace":   func(_ *Rules, r *job.Request) { r.Workspace = new(job.Workspace) },
		"protection":            func(_ *Rules, r *job.Request) { r.Protect = job.ProtectAll },
		"protection by rule":    func(rules *Rules, _ *job.Request) { rules.Repos[0].Protect = job.ProtectHooks },
		"root file system":      func(_ *Rules, r *job.Request) { r.Root, r.Dir = true, "/" },
		"shared home directory": func(_ *Rules, r *job.Request) { r.Share = true },
		"output":                func(_ *Rules, r *job.Request) { r.Output = 1 },
		"more output":           func(_ *Rules, r *job.Request) { r.Output = 2 },
		"network":               func(_ *Rules, r *job.Request) { r.Network = "npm" },
		"no network":            func(_ *Rules, r *job.Request) { r.Network = job.NoNetwork },
		"network by rule":       func(rules *Rules, _ *job.Request) { rules.Network.Max = "npm" },
		"network of a builtin":  func(_ *Rules, r *job.Request) { r.Network, r.Builtin = "npm", job.ToolEdit },
		"starlark":              program,
		"starlark, output": func(rules *Rules, r *job.Request) {
			program(rules, r)
			r.Output = 1
		},
		"starlark, time": func(rules *Rules, r *job.Request) {
			program(rules, r)
			r.Limits.Wall = 2 * time.Second
		},
		"starlark, memory": func(rules *Rules, r *job.Request) {
			program(rules, r)
			rules.Starlark.Memory = 64 << 20
		},
	} {
		try(what, installed, change)
	}
	try("another program with the same name", elsewhere, func(*Rules, *job.Request) {})
	try("no program", runtimes.Installed{}, func(*Rules, *job.Request) {})
}

// TestHashIgnores: whatever differs between two equal requests, and values of variables, do not change the hash.
func TestHashIgnores(t *testing.T) {
	_, installed := toolchain(t, "python3")
	want := decide(t, rules(), installed, request()).Hash
	for what, change := range map[string]func(rules *Rules, r *job.Request){
		"nothing":           func(*Rules, *job.Request) {},
		"id":                func(_ *Rules, r *job.Request) { r.ID = "1" },
		"session":           func(_ *Rules, r *job.Request) { r.Session = "2" },
		"tool":              func(_ *Rules, r *job.Request) { r.Tool = "other" },
		"value of variable": func(rules *Rules, _ *job.Request) { rules.Environ[1] = "TOKEN=other" },
		"other variable":    func(rules *Rules, _ *job.Request) { rules.Environ = append(rules.Environ, "MORE=1") },
		"unused ceiling":    func(rules *Rules, _ *job.Request) { rules.Repos[0].Ceilings.PIDs = 1000 },
		"other repository":  func(rules *Rules, _ *job.Request) { rules.Repos = rules.Repos[:1] },
		"other runtime":     func(rules *Rules, _ *job.Request) { rules.Runtimes = []string{"python"} },
		"rules that allow":  func(rules *Rules, _ *job.Request) { rules.Operator = verdict{} },
	} {
		rules, r := rules(), request()
		change(&rules, &r)
		if got := decide(t, rules, installed, r).Hash; got != want {
			t.Errorf("%s changes the hash", what)
		}
	}
}

// decode is the inverse of encode. That it exists proves that no two identities have the same encoding.
func decode(b []byte) (i identity, ok bool) {
	number := func() int64 {
		if len(b) < 8 {
			panic("short")
		}
		n := int64(binary.BigEndian.Uint64(b))
		b = b[8:]
		return n
	}
	text := func() string {
		n := number()
		if n < 0 || n > int64(len(b)) {
			panic("short")
		}
		s := string(b[:n])
		b = b[n:]
		return s
	}
	texts := func() (list []string) {
		for range number() {
			list = append(list, text())
		}
		return list
	}
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	for _, s := range []*string{
		&i.version, &i.principal, &i.repo, &i.path, &i.workspace, &i.profile, &i.rootfs, &i.runtime, &i.executable, &i.program,
		&i.real, &i.missing,
	} {
		*s = text()
	}
	i.hasCode, i.code = number() == 1, text()
	i.args, i.stdin, i.env = texts(), text(), texts()
	i.dir = text()
	limits := func(usual int64) (l job.Limits) {
		fields := l.Fields()
		for _, f := range fields {
			*f.Value = usual
		}
		for name := text(); name != ""; name = text() {
			at := slices.IndexFunc(fields[:], func(f job.Field) bool { return f.Name == name })
			*fields[at].Value = number()
		}
		return l
	}
	i.asked = limits(0)
	if number() == 1 {
		i.limits = limits(job.Unlimited)
	}
	i.rule, i.reasons = text(), texts()
	if len(b) > 0 {
		i.more = extra{command: texts(), env: texts(), rows: number(), cols: number(), workspace: text(), protect: text(), root: number()}
	}
	if len(b) > 0 {
		i.more.output = number()
	}
	if len(b) > 0 {
		i.more.builtin = text()
	}
	if len(b) > 0 {
		i.more.askedNetwork, i.more.network = text(), text()
	}
	return i, len(b) == 0
}

func FuzzEncoding(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		word := func() string {
			return []string{"", "a", "b", "ab", "\x00", "\x00\x00\x00\x00\x00\x00\x00\x01a"}[r.IntN(6)]
		}
		words := func() (list []string) {
			for range r.IntN(3) {
				list = append(list, word())
			}
			return list
		}
		i := identity{
			word(), word(), word(), word(), word(), word(), word(), word(), word(), word(), word(), word(), r.IntN(2) == 0, word(),
			words(), word(), words(), word(),
			job.Limits{Memory: r.Int64()},
			job.Limits{OpenFiles: -1},
			word(), words(),
			extra{words(), words(), r.Int64N(2), r.Int64N(2), word(), word(), r.Int64N(2), r.Int64N(2), word(), word(), word()},
		}
		if got, ok := decode(i.encode()); !ok || !reflect.DeepEqual(got, i) {
			t.Errorf("%+v decoded as %+v", i, got)
		}
	})
}

// TestGolden: the encoding is a format that others compute, too: if it changes, its version must change.
func TestGolden(t *testing.T) {
	i := identity{
		version: version, principal: "user:ada", repo: "app", path: "/srv/app", workspace: "direct", profile: "default",
		rootfs: "host", runtime: "python", program: "/usr/bin/python3", real: "/usr/bin/python3.11", hasCode: true, code: "c",
		args: []string{"a"}, env: []string{"HOME", "PATH"}, dir: ".", limits: job.Defaults(),
	}
	i.limits.Tmp, i.limits.TmpInodes = 512<<20, 65536
	const want = "fab84a746e8de2c6852ab05bc6cf1b807184a26460e0417ae3c68b8c74699af0"
	if got := hexSum(i.encode()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// loose is an Operator with random verdicts.
type loose struct{ r *rand.Rand }

func (l loose) verdict() starlark.Verdict {
	v := starlark.Verdict{Denied: l.r.IntN(4) == 0}
	if l.r.IntN(2) == 0 {
		v.Reason = "x"
	}
	for _, f := range v.Limits.Fields() {
		switch l.r.IntN(8) {
		case 0:
			*f.Value = l.r.Int64N(1 << 40)
		case 1:
			*f.Value = f.Min
		case 2:
			*f.Value = -l.r.Int64N(3)
		}
	}
	return v
}

// FuzzDecide: no request makes Decide panic; the operator's rules never allow what the chain denies, and never give a
// job more than it would get without them.
func FuzzDecide(f *testing.F) {
	_, installed := toolchain(f, "python3", "bash")
	for i, r := range []job.Request{request(), {Repo: "narrow", Runtime: "shell", Args: []string{"-c", "x"}}, {}} {
		f.Add(uint64(i), r.Repo, r.Runtime, r.Executable, "x", "y", r.Dir, int64(0), int64(0), true)
	}
	for i, s := range []string{"..", "/", "a/../b", "\x00", "./python3", "/usr/bin/python3"} {
		f.Add(uint64(i), "app", "python", s, s, s, s, int64(-1), int64(1)<<62, false)
	}
	f.Fuzz(func(t *testing.T, seed uint64, repo, runtime, executable, code, arg, dir string, wall, memory int64, hasCode bool) {
		r := job.Request{
			Repo: repo, Runtime: runtime, Executable: executable, Args: []string{arg}, Dir: dir,
			Limits: job.Limits{Wall: time.Duration(wall), Memory: memory},
		}
		switch {
		case runtime == "":
			r.Executable, r.Args, r.Command, r.Env = "", nil, []string{executable, arg}, map[string]*string{arg: &code, code: nil}
		case hasCode:
			r.Code = &code
		}
		without := decide(t, rules(), installed, r)
		with := rules()
		v := loose{rand.New(rand.NewPCG(seed, 1))}.verdict()
		with.Operator = verdict(v)
		d := decide(t, with, installed, r)
		if d.Allowed() && (!without.Allowed() || v.Denied) {
			t.Fatalf("allowed with %+v: %+v, without %+v", v, d, without)
		}
		if d.Allowed() {
			if err := within(d.Spec.Limits, without.Spec.Limits); err != nil {
				t.Errorf("with %+v: %v", v, err)
			}
			spec := d.Spec
			spec.Limits = without.Spec.Limits
			if !reflect.DeepEqual(spec, without.Spec) {
				t.Errorf("%+v, without %+v", spec, without.Spec)
			}
		}
		if !without.Allowed() && (d.Rule != without.Rule || !slices.Equal(d.Reasons, without.Reasons)) {
			t.Errorf("%+v, without %+v", d, without)
		}
		if again := decide(t, with, installed, r); fmt.Sprint(again) != fmt.Sprint(d) {
			t.Errorf("%+v, again %+v", d, again)
		}
	})
}
