package main

import (
	"os"
	"path/filepath"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestGitSettings checks that git in the jobs of servers has the settings of the user who runs the server. The script git_settings
// tests those of the command line, and package client which settings these are.
func TestGitSettings(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Program("git"))
	p := newPlace(t)
	if err := os.WriteFile(filepath.Join(p.dir, ".gitconfig"), []byte("[user]\n\tname = ada\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d := daemon(t)
	h := connect(t, p.front("mcp", "--config", p.config(t, ""), "--supervisor", d.Socket, "--tools", "agent,runtime_execute"))
	if got := h.run("git config user.name"); got != "ada\n" {
		t.Errorf("run: %q", got)
	}
	if o := h.shell("git config user.name"); o.StdoutSummary == nil || *o.StdoutSummary != "ada\n" {
		t.Errorf("runtime_execute: %+v", o)
	}
	if r := p.execSite(t, d, overStdio, "").client().shell("git config user.name"); *r.Stdout != "ada\n" {
		t.Errorf("command/exec: %q, %q", *r.Stdout, *r.Stderr)
	}
}
