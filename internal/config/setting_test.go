package config

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"corral/job"
)

func TestFor(t *testing.T) {
	c, err := parseOne("f", []byte(`version: 1
repos:
  - path: /bare
  - path: /strict
    profile: strict
  - path: /tight
    profile: tight
  - path: /own
    profile: tight
    workspace: direct
    protect: hooks
    defaults: {memory: 64MiB, timeout: 5s}
    ceilings: {pids: 30, timeout: 20s, memory: 64GiB}
    env: {allow: [X]}
    runtimes: [shell, go, python]
defaults: {pids: 99, memory: 1GiB}
ceilings: {memory: 4GiB, disk: unlimited}
profiles:
  tight: {syscalls: strict, workspace: readonly, defaults: {pids: 10}, ceilings: {pids: 20, disk: 1GiB}}
runtime: {runtimes: [python, shell], env: {allow: [A]}, max_duration: 30s, defaults: {pids: 50, cpus: 1.5}}
`), lookup)
	if err != nil {
		t.Fatal(err)
	}
	base := Setting{
		Defaults: job.Defaults(), Ceilings: job.Limits{Memory: 4 << 30, Wall: 30 * time.Second}, Syscalls: "default",
		Env: []string{"A"}, Runtimes: []string{"python", "shell"},
	}
	base.Defaults.Memory, base.Defaults.PIDs, base.Defaults.MilliCPUs, base.Defaults.Wall = 1<<30, 50, 1500, 30*time.Second
	for id, change := range map[string]func(s *Setting){
		"bare":   func(*Setting) {},
		"strict": func(s *Setting) { s.Syscalls = "strict" },
		"tight": func(s *Setting) {
			s.Syscalls, s.Workspace, s.Defaults.PIDs, s.Ceilings.PIDs = "strict", job.ReadOnly, 10, 20
			s.Ceilings.Disk, s.Defaults.Disk = 1<<30, 1<<30
		},
		"own": func(s *Setting) {
			s.Syscalls, s.Defaults.PIDs, s.Ceilings.PIDs, s.Defaults.Memory = "strict", 10, 20, 64<<20
			s.Protect = job.ProtectHooks
			s.Ceilings.Disk, s.Defaults.Disk = 1<<30, 1<<30
			s.Defaults.Wall, s.Ceilings.Wall = 5*time.Second, 20*time.Second
			s.Env = []string{"X"}
		},
	} {
		r, ok := c.Repo(id)
		if !ok {
			t.Fatalf("no repository %s", id)
		}
		want := base
		change(&want)
		if got := c.For(r); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v\nwant %+v", id, got, want)
		}
	}
	if _, ok := c.Repo("none"); ok {
		t.Error("found a repository that does not exist")
	}
	// The caller may change the result.
	bare, _ := c.Repo("bare")
	s := c.For(bare)
	s.Env[0], s.Runtimes[0] = "changed", "changed"
	if !slices.Equal(c.Runtime.Env, []string{"A"}) || c.Runtime.Runtimes[0] != "python" {
		t.Error("a setting shares memory with the configuration")
	}
}

// TestForDefaults: without any file, a job in a directory that the command line names has limits.
func TestForDefaults(t *testing.T) {
	s := Default().For(Repo{ID: "x", Path: "/x"})
	if s.Defaults.Wall != 10*time.Minute || s.Ceilings.Wall != 10*time.Minute || s.Syscalls != "default" || len(s.Runtimes) != 17 || len(s.Env) != 0 {
		t.Errorf("%+v", s)
	}
	for _, f := range s.Defaults.Fields() {
		if *f.Value == 0 {
			t.Errorf("no default for %s", f.Name)
		}
	}
}

// TestTimeout: a call that requests no timeout has the configured one, else a minute, and never more than the maximum.
func TestTimeout(t *testing.T) {
	for _, tt := range []struct {
		name, file     string
		usual, longest time.Duration
	}{
		{"nothing", "", time.Minute, 10 * time.Minute},
		{"a lower maximum", "runtime: {max_duration: 20s}", 20 * time.Second, 20 * time.Second},
		{"a ceiling", "ceilings: {timeout: 30s}", 30 * time.Second, 30 * time.Second},
		{"of the file", "defaults: {timeout: 5m}", 5 * time.Minute, 10 * time.Minute},
		{"of the runtimes", "defaults: {timeout: 5m}\nruntime: {defaults: {timeout: 3s}}", 3 * time.Second, 10 * time.Minute},
		{"unlimited", "defaults: {timeout: unlimited}", time.Minute, 10 * time.Minute},
	} {
		c, err := parseOne("f", []byte("version: 1\n"+tt.file+"\n"), lookup)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if usual, longest := c.Timeout(Repo{Path: "/a"}); usual != tt.usual || longest != tt.longest {
			t.Errorf("%s: %s and %s, want %s and %s", tt.name, usual, longest, tt.usual, tt.longest)
		}
	}
	r := Repo{Path: "/a", Defaults: job.Limits{Wall: 7 * time.Second}, Ceilings: job.Limits{Wall: 9 * time.Second}}
	if usual, longest := Default().Timeout(r); usual != 7*time.Second || longest != 9*time.Second {
		t.Errorf("of the repository: %s and %s", usual, longest)
	}
}

// TestSandboxWorkspace: commands of sandbox_exec change a copy, unless the configuration says otherwise explicitly.
func TestSandboxWorkspace(t *testing.T) {
	for _, tt := range []struct {
		section, repo, profile string
		want                   job.Workspace
	}{
		{"", "", "", job.Overlay},
		{"", "", "workspace: direct", job.Direct},
		{"", "workspace: direct", "", job.Direct},
		{"", "workspace: overlay", "", job.Overlay},
		{"", "workspace: readonly", "", job.ReadOnly},
		{"", "workspace: overlay", "workspace: direct", job.Overlay},
		{"direct", "", "", job.Direct},
		{"direct", "workspace: overlay", "", job.Overlay},
		{"direct", "workspace: readonly", "", job.ReadOnly},
		{"direct", "", "workspace: readonly", job.ReadOnly},
		{"overlay", "workspace: direct", "", job.Overlay},
		{"overlay", "workspace: readonly", "", job.ReadOnly},
		{"readonly", "workspace: direct", "", job.ReadOnly},
		{"readonly", "workspace: overlay", "", job.ReadOnly},
	} {
		text := fmt.Sprintf("version: 1\nrepos: [{path: /app, profile: mine, %s}]\nprofiles: {mine: {syscalls: strict, %s}}\n", tt.repo, tt.profile)
		if tt.section != "" {
			text += "sandbox: {workspace: " + tt.section + "}\n"
		}
		c, err := parseOne("f", []byte(text), lookup)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.SandboxWorkspace(c.Repos[0]); got != tt.want {
			t.Errorf("sandbox %q, repository %q, profile %q: %v, want %v", tt.section, tt.repo, tt.profile, got, tt.want)
		}
	}
}
