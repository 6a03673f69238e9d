package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corral/internal/config"
	"corral/internal/test/sandboxtest"
)

// TestLogs: a job's user and root follow its output while it runs, with secrets redacted. Another user does not learn that it exists.
func TestLogs(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	token, hash := config.NewToken()
	w := p.web(t, d, fmt.Sprintf("principals: [{name: a, token_sha256: \"%x\"}]\n", hash))
	_, session, _ := w.post(token, "", hello)
	code := `i=0; until [ -e go ]; do i=$((i+1)); echo line $i ghp_abcdefghijklmnopqrstuvwxyz0123456789; sleep 0.05; done; echo the end`
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.call(token, session, "runtime_execute", `{"repoId":"app","runtime":"shell","code":"`+code+`"}`)
	}()
	id := ""
	sandboxtest.Eventually(t, 20*time.Second, "the job runs", func() bool {
		var out strings.Builder
		ps := p.usual("ignored")
		ps.Path, ps.Args = sandboxtest.Bin(t, "corral"), []string{"corral", "ps", "--json", "--supervisor", d.Socket}
		ps.SysProcAttr, ps.Stdout = nil, &out
		_ = ps.Run()
		_, rest, _ := strings.Cut(out.String(), `"job":"`)
		id, _, _ = strings.Cut(rest, `"`)
		return id != ""
	})
	asRoot := p.usual("logs", "--follow", id, "--supervisor", d.Socket)
	asRoot.SysProcAttr = nil
	follows := map[string]*sandboxtest.Command{
		"its user": sandboxtest.Start(t, p.usual("logs", "-f", id, "--supervisor", d.Socket)), "root": sandboxtest.Start(t, asRoot),
	}
	for who, c := range follows {
		sandboxtest.Eventually(t, 20*time.Second, who+" sees the output", func() bool { return strings.Contains(c.Out.String(), "line 2") })
	}
	now, err := p.usual("logs", id, "--supervisor", d.Socket).Output()
	if err != nil || !strings.HasPrefix(string(now), "line 1 ") || strings.Contains(string(now), "ghp_") {
		t.Errorf("without -f: %q, %v", now, err)
	}
	other := p.usual("logs", "-f", id, "--supervisor", d.Socket)
	other.SysProcAttr.Credential.Uid++
	out, err := other.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no running job "+id) {
		t.Errorf("another user: %q, %v", out, err)
	}
	if err := os.WriteFile(filepath.Join(p.repo, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for who, c := range follows {
		<-c.Ended
		if got := c.Out.String(); !strings.HasSuffix(got, "the end\n") || strings.Contains(got, "ghp_") || !c.ProcessState.Success() {
			t.Errorf("%s: %q, %v: %s", who, got, c.ProcessState, c.Err.String())
		}
	}
	<-ended
	out, err = p.usual("logs", id, "--supervisor", d.Socket).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no running job") {
		t.Errorf("after its end: %q, %v", out, err)
	}
}
