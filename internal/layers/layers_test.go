package layers

import (
	"slices"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

func TestModule(t *testing.T) {
	g, err := load(sandboxtest.ModuleRoot(t))
	if err != nil {
		t.Fatal(err)
	}
	if g.pkgs["internal/lazyregexp"] == nil {
		t.Fatal("the graph lacks a package that this module has")
	}
	for _, line := range g.check() {
		t.Error(line)
	}
}

// TestRules proves that each rule is checked: it builds a graph that breaks the rule.
func TestRules(t *testing.T) {
	const (
		runc    = "github.com/opencontainers/runc/libcontainer"
		nsenter = runc + "/nsenter"
		sysunix = "golang.org/x/sys/unix"
	)
	tests := []struct {
		name  string
		files map[string][]string // file → its imports
		want  string              // part of the one line, "" for none
	}{
		{"nothing", nil, ""},
		{"owner", map[string][]string{"isolate/cell/a.go": {runc}}, ""},
		{"no owner", map[string][]string{"isolate/inside/a.go": {runc}}, "isolate/inside imports " + runc},
		{"nsenter in corrald", map[string][]string{"cmd/corrald/a.go": {nsenter}}, ""},
		{"nsenter elsewhere", map[string][]string{"cmd/corral-x/a.go": {nsenter}}, "belongs to isolate/cell and cmd/corrald"},
		{"libcontainer in corrald", map[string][]string{"cmd/corrald/a.go": {runc}}, "belongs to isolate/cell:"},
		{"version of a library", map[string][]string{"job/a.go": nil, "cgroup/a.go": {"github.com/containerd/cgroups/v3/cgroup2"}}, ""},
		{"policy/starlark", map[string][]string{"policy/starlark/a.go": {"go.starlark.net/starlark", "corral/job"}, "job/a.go": nil}, ""},
		{"policy/starlark elsewhere", map[string][]string{"policy/a.go": {"go.starlark.net/syntax"}}, "belongs to policy/starlark"},
		{"policy/starlark and files of ours", map[string][]string{"policy/starlark/a.go": {"corral/internal/config"}}, "policy/starlark must not reach internal/config"},
		{"policy and the supervisor", map[string][]string{"policy/a.go": {"corral/seccomp"}}, "policy imports seccomp (policy/a.go): policy may import internal, job"},
		{"policy and the configuration", map[string][]string{"policy/a.go": {"corral/internal/config"}}, "policy must not reach internal/config"},
		{"yaml", map[string][]string{"policy/a.go": {"go.yaml.in/yaml/v3"}}, "belongs to internal/config/strict"},
		{"x/sys everywhere", map[string][]string{"front/a/a.go": {sysunix}, "store/b/b.go": {sysunix}}, ""},
		{
			"two importers",
			map[string][]string{"front/a/a.go": {"example.org/lib/x"}, "store/b/b.go": {"example.org/lib/y"}},
			"example.org/lib is imported by front/a and store/b",
		},
		{
			"screens and what tests need",
			map[string][]string{"internal/test/clitest/a.go": {"corral/internal/test/sandboxtest", "github.com/hinshun/vt10x"}, "internal/test/sandboxtest/a.go": nil},
			"",
		},
		{"screens in a program", map[string][]string{"rpc/a.go": {"corral/internal/test/clitest"}, "internal/test/clitest/a.go": nil}, "rpc imports internal/test/clitest"},
		{"job with a library", map[string][]string{"job/a.go": {sysunix}}, "job must not reach " + sysunix},
		{"job with a package of ours", map[string][]string{"job/a.go": {"corral/seccomp"}}, "job must not reach seccomp"},
		{"job with the standard library", map[string][]string{"job/a.go": {"net/http"}}, ""},
		{"cgroup and jails", map[string][]string{"cgroup/a.go": {"corral/isolate/wire"}}, "cgroup imports isolate/wire"},
		{"rootfs and jobs", map[string][]string{"rootfs/a.go": {"corral/job"}}, "rootfs imports job"},
		{
			"corral stays thin",
			map[string][]string{"cmd/corral/a.go": {"corral/isolate/client"}, "isolate/client/a.go": {"corral/store/audit"}},
			"cmd/corral → isolate/client → store/audit (isolate/client/a.go)",
		},
		{
			"corral as designed",
			map[string][]string{
				"cmd/corral/a.go":     {"corral/isolate/client", "corral/internal/version", sysunix, "os"},
				"isolate/client/a.go": {"corral/isolate/wire", "corral/job"},
			},
			"",
		},
		{"config and the supervisor", map[string][]string{"internal/config/a.go": {"corral/isolate"}}, "internal/config imports isolate"},
		{"config as designed", map[string][]string{"internal/config/a.go": {"corral/internal/config/strict", "corral/job", "embed"}, "internal/config/strict/a.go": {"go.yaml.in/yaml/v3"}, "job/a.go": nil}, ""},
		{"front/doctor and the supervisor", map[string][]string{"front/doctor/a.go": {"corral/cgroup"}}, "front/doctor imports cgroup"},
		{"front/doctor as designed", map[string][]string{"front/doctor/a.go": {"corral/isolate/client", sysunix}, "isolate/client/a.go": {"corral/job"}, "job/a.go": nil}, ""},
		{"init with a library", map[string][]string{"cmd/corral-init/a.go": {"corral/isolate/inside"}, "isolate/inside/a.go": {"example.org/lib"}}, "example.org/lib"},
		{"init with C", map[string][]string{"cmd/corral-init/a.go": {"C"}}, "cmd/corral-init must not reach C"},
		{
			"front and the supervisor",
			map[string][]string{"cmd/corral-front/a.go": {"corral/front/mid"}, "front/mid/a.go": {"corral/isolate"}},
			"cmd/corral-front → front/mid → isolate",
		},
		{"front and the client", map[string][]string{"cmd/corral-front/a.go": {"corral/isolate/client"}}, ""},
		{"supervisor and TLS", map[string][]string{"cmd/corrald/a.go": {"corral/egress/relay"}, "egress/relay/a.go": {"crypto/tls"}}, "egress/relay → crypto/tls"},
		{"supervisor and HTTP", map[string][]string{"cmd/corrald/a.go": {"net/http"}}, "cmd/corrald must not reach net/http"},
		{"built on wiring", map[string][]string{"front/fleet/a.go": {"corral/cmd/corral"}}, "front/fleet imports cmd/corral"},
		{"test package", map[string][]string{"front/fleet/a.go": {"corral/internal/test/sandboxtest"}}, "front/fleet imports internal/test/sandboxtest"},
		{"test package beside its subject", map[string][]string{"internal/a/a.go": {"corral/internal/text/sometest"}}, "internal/a imports internal/text/sometest"},
		{"part of a room", map[string][]string{"egress/a.go": {"corral/policy/network"}}, ""},
		{"another part of it", map[string][]string{"egress/a.go": {"corral/policy/ask"}}, "egress imports policy/ask"},
		{"no room", map[string][]string{"fleet/a.go": nil}, "fleet is in no room"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := fake(t, tt.files).check()
			switch {
			case tt.want == "" && len(got) > 0:
				t.Errorf("got %q, want nothing", got)
			case tt.want != "" && !slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, tt.want) }):
				t.Errorf("got %q, want a line with %q", got, tt.want)
			}
		})
	}
}

// fake returns a graph of files given by their imports.
func fake(t *testing.T, files map[string][]string) *graph {
	t.Helper()
	g := newGraph("require example.org/lib v1.0.0\nrequire golang.org/x/sys v0.49.0\n")
	for _, name := range sorted(files) {
		imports := ""
		for _, i := range files[name] {
			imports += "import _ \"" + i + "\"\n"
		}
		if err := g.add(name, []byte("package p\n"+imports)); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func TestEverBuilt(t *testing.T) {
	for tag, want := range map[string]bool{
		"linux":                true,
		"windows":              false,
		"ignore":               false,
		"!amd64":               true,
		"amd64 && arm64":       true, // never true, but counted: the two are evaluated as if independent
		"linux && !cgo":        true,
		"seccomp && !windows":  true,
		"seccomp && (darwin)":  false,
		"go1.26 && !linux":     false,
		"!ignore && !seccomp":  true,
		"linux && anothertool": false,
	} {
		g := newGraph("")
		if err := g.add("a/a.go", []byte("// A comment.\n\n//go:build "+tag+"\n\npackage a\n")); err != nil {
			t.Fatal(err)
		}
		if got := g.pkgs["a"] != nil; got != want {
			t.Errorf("%s: %t, want %t", tag, got, want)
		}
	}
}

func TestRequired(t *testing.T) {
	got := required("module m\n\ngo 1.26.5\n\nrequire (\n\ta.org/x v1.2.3\n\tb.org/y/v2 v2.0.0 // indirect\n)\n\nrequire c.org/z v0.1.0\n")
	if want := []string{"a.org/x", "b.org/y/v2", "c.org/z"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestReasons requires a reason for each rule.
func TestReasons(t *testing.T) {
	for _, o := range owners {
		if o.reason == "" || len(o.pkgs) == 0 {
			t.Errorf("%s: the row has no reason or no owner", o.tree)
		}
	}
	for _, r := range rooms {
		if r.reason == "" {
			t.Errorf("%s: the row has no reason", r.name)
		}
	}
	for _, b := range bounds {
		if b.reason == "" || (b.only == nil) == (b.never == nil) {
			t.Errorf("%s: the row has no reason, or not exactly one of only and never", b.from)
		}
	}
}
