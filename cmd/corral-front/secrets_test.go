package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/policy/runtimes/runtimestest"
)

// TestSecrets checks that no runtime finds the secrets in the server's environment, or an agent's socket.
func TestSecrets(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	agent := filepath.Join(p.dir, "agent.sock")
	l, err := net.Listen("unix", agent)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(agent, 0o777); err != nil {
		t.Fatal(err)
	}
	d := daemon(t)
	// Redaction must not hide a secret that was found.
	cmd := p.front("mcp", "--config", p.config(t, "output: {redact: false}\n"), "--supervisor", d.Socket)
	cmd.Env = append(cmd.Env, "SSH_AUTH_SOCK="+agent)
	h := connect(t, cmd)
	for _, s := range runtimestest.Samples {
		// A compiled program sees what its compiler saw: except in a soak run, that in C stands for all.
		if runtimestest.Compiled[s.Runtime] && s.Runtime != "c" && !sandboxtest.Soak() {
			continue
		}
		t.Run(s.Runtime, func(t *testing.T) {
			o := h.execute(object{
				"runtime": s.Runtime, "code": s.Snoop, "args": []string{agent}, "outputMode": "summary", "maxResponseLines": 1000,
				"timeoutMs": 60_000,
			})
			if o.Message != "" {
				t.Skip(o.Message)
			}
			if out := o.out(); o.Status != "success" || !strings.Contains(out, "snooped") || o.ArtifactHandle == nil {
				t.Fatalf("%s: the program did not reach its end: %s %s", o.Status, out, *o.StderrSummary)
			}
			for _, word := range []string{"hunter2", "SSH_AUTH_SOCK", "SECRET_TOKEN", "AWS_", "FOUND"} {
				if found := h.query(object{"artifactHandle": *o.ArtifactHandle, "queryTerms": []string{word}}); found.MatchStatus != "noMatchFallback" {
					t.Errorf("%s is there: %+v", word, found.Excerpts)
				}
			}
			if found := h.query(object{"artifactHandle": *o.ArtifactHandle, "queryTerms": []string{"TMPDIR"}}); found.MatchStatus != "matched" {
				t.Error("the program did not see its own environment")
			}
		})
	}
}
