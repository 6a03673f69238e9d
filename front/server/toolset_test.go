package server

import (
	"log/slog"
	"strings"
	"testing"

	"corral/front/supervisor"
	"corral/internal/config"
)

// TestCtxTools checks that the ctx tools are not listed where nothing may run, or where they are disabled. The tools for agents do not
// need the switch of the ctx tools.
func TestCtxTools(t *testing.T) {
	repos := []config.Repo{{ID: "app", Path: "/srv/app"}, {ID: "none", Path: "/srv/none", Runtimes: []string{}}}
	for _, tt := range []struct {
		name   string
		change func(c *config.Config)
		repos  string
		tools  int
	}{
		{"usual", func(*config.Config) {}, "app", 9},
		{"switched off", func(c *config.Config) { c.Ctx.Enabled = false }, "app", 0},
		{"nothing runs", func(c *config.Config) { c.Runtime.Enabled = false }, "", 0},
		{"no repository", func(c *config.Config) { c.Repos = repos[1:] }, "", 0},
		{"one of them", func(c *config.Config) { c.Ctx.Repo = "app" }, "app", 9},
		{"one in which nothing may be run", func(c *config.Config) { c.Ctx.Repo = "none" }, "", 0},
		{"no index", func(c *config.Config) { c.Index.Enabled = false }, "app", 9},
		{"one job", func(c *config.Config) { c.Runtime.MaxConcurrentJobs = 1 }, "app", 9},
		{"plain", func(c *config.Config) { c.Output.Redact = false }, "app", 9},
	} {
		c := config.Default()
		c.Repos = repos
		tt.change(&c)
		rules, err := NewPolicy(c, &Principals{})
		if err != nil {
			t.Fatal(err)
		}
		b := newToolset(backendOptions{Config: c, Log: slog.New(slog.DiscardHandler), Supervisor: &supervisor.Connection{}}, rules, nil, nil)
		if tools := ctxTools(c, b.ctx, rules); len(tools) != tt.tools || strings.Join(b.ctx.Repos, " ") != tt.repos {
			t.Errorf("%s: %d tools for %q", tt.name, len(tools), b.ctx.Repos)
		}
		if agents := len(b.agentTools(c)); agents > 0 != (tt.repos != "") {
			t.Errorf("%s: %d tools for agents", tt.name, agents)
		}
		if limit := max(1, c.Runtime.MaxConcurrentJobs/2); tt.tools > 0 && b.ctx.MaxBackgroundAll != limit || b.ctx.Plain == c.Output.Redact {
			t.Errorf("%s: %d jobs in the background, plain %t", tt.name, b.ctx.MaxBackgroundAll, b.ctx.Plain)
		}
		if none := b.ctx.Knowledge == nil; none != !c.Index.Enabled {
			t.Errorf("%s: no index: %t", tt.name, none)
		}
	}
}
