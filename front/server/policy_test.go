package server

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"corral/internal/config"
	"corral/job"
	"corral/policy"
)

// TestPolicyRules checks that every setting of the configuration reaches the policy.
func TestPolicyRules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(`
version: 1
toolchains: [/opt/x]
defaults: {memory: 1GiB}
ceilings: {pids: 9}
repos:
  - {path: /srv/a, id: one, profile: strict, workspace: readonly, env: {allow: [A]}, runtimes: [shell], ceilings: {timeout: 5s}}
  - {path: /srv/b}
runtime: {enabled: false, runtimes: [python, shell], executables: [bash], env: {allow: [B]}, runtime_env: {python: {B: b}}, max_duration: 9s,
  network: npm pypi, tool_network: {sandbox_exec: none}}
principals:
  - {name: ci, token_sha256: "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b", network: "npm,example.org:443"}
  - {name: other, token_sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}
ctx: {background_life: 2h}
starlark: {enabled: true, memory: 128MiB, max_wall: 30s}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.LoadFront(config.Source{Path: file})
	if err != nil {
		t.Fatal(err)
	}
	principals := PrincipalsOf(c.Principals)
	got := policyRules(c, principals, []string{"A=1"})
	if one, other := got.Network.ByPrincipal.Of("token:ci"), got.Network.ByPrincipal.Of("token:other"); one != "npm example.org:443" || other != "" {
		t.Errorf("the network of principals: %q, %q", one, other)
	}
	want := policy.Rules{
		Runtimes: []string{"python", "shell"}, Executables: []string{"bash"}, Environ: []string{"A=1"}, Rootfs: "host\x00/opt/x",
		RuntimeEnv: map[string]map[string]string{"python": {"B": "b"}}, Starlark: policy.Starlark{Enabled: true, Memory: 128 << 20},
		Network: policy.Network{
			Max: "npm pypi", ByPrincipal: &principals.Network, ByTool: map[string]string{"sandbox_exec": job.NoNetwork},
		},
		Repos: []policy.Repo{
			{
				ID: "one", Path: "/srv/a", Runtimes: []string{"shell"}, Env: []string{"A"}, Workspace: job.ReadOnly, RootWorkspace: new(job.ReadOnly), Profile: "strict",
				Ceilings: job.Limits{Memory: memory(), PIDs: 9, Wall: 5 * time.Second}, RootWall: 5 * time.Second,
				BackgroundWall: 5 * time.Second, StarlarkWall: 5 * time.Second,
			},
			{
				ID: "b", Path: "/srv/b", Runtimes: []string{"python", "shell"}, Env: []string{"B"}, RootWorkspace: new(job.Overlay), Profile: "default",
				Ceilings: job.Limits{Memory: memory(), PIDs: 9, Wall: 9 * time.Second}, RootWall: time.Hour,
				BackgroundWall: 2 * time.Hour, StarlarkWall: 30*time.Second + job.StarlarkGrace,
			},
		},
	}
	for i := range got.Repos {
		d := got.Repos[i].Defaults
		if d.Memory != 1<<30 || d.PIDs != 9 || d.Within(got.Repos[i].Ceilings) != nil {
			t.Errorf("defaults %+v", d)
		}
		got.Repos[i].Defaults = job.Limits{}
	}
	a, errA := json.Marshal(got)
	b, errB := json.Marshal(want)
	if string(a) != string(b) || errA != nil || errB != nil {
		t.Errorf("got  %s\nwant %s", a, b)
	}
	if got.Operator != nil {
		t.Error("there are operator rules without a file")
	}
}

// TestSmallHost checks that on a host with less memory than a job's default, a job without a limit gets what the host
// has, and is not refused.
func TestSmallHost(t *testing.T) {
	if memory() < 1<<20 {
		t.Errorf("this host has %d bytes of memory", memory())
	}
	for _, tt := range []struct{ total, ceiling, wantCeiling, want int64 }{
		{1 << 30, 0, 1 << 30, 1 << 30},
		{1 << 30, 3 << 30, 3 << 30, 2 << 30}, // the operator's ceiling is kept
		{8 << 30, 0, 8 << 30, 2 << 30},
		{0, 0, 0, 2 << 30},
	} {
		s := config.Setting{Defaults: job.Defaults(), Ceilings: job.Limits{Memory: tt.ceiling}}
		bound(&s, tt.total)
		if s.Ceilings.Memory != tt.wantCeiling || s.Defaults.Memory != tt.want {
			t.Errorf("%+v: ceiling %d, default %d", tt, s.Ceilings.Memory, s.Defaults.Memory)
		}
	}
}
