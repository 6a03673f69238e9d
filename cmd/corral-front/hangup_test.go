package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/internal/config"
	"corral/internal/test/sandboxtest"
)

// logs waits for a line of the server's diagnostic log that contains all words.
func logs(t *testing.T, c *sandboxtest.Command, words ...string) {
	t.Helper()
	sandboxtest.Eventually(t, 20*time.Second, fmt.Sprintf("the log has a line with %q", words), func() bool {
		if c.EndsWithin(0) {
			t.Fatal("the server has ended")
		}
		for line := range strings.Lines(c.Err.String()) {
			missing := false
			for _, word := range words {
				missing = missing || !strings.Contains(line, word)
			}
			if !missing {
				return true
			}
		}
		return false
	})
}

// TestServeHangUp: SIGHUP makes corral serve read the tokens again and names the other keys that were changed. It ends no
// request, and a faulty file changes nothing.
func TestServeHangUp(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	first, hash := config.NewToken()
	file := p.config(t, fmt.Sprintf("principals: [{name: a, token_sha256: \"%x\"}]\n", hash))
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w := p.webAt(t, d, file)
	hangUp := func() {
		t.Helper()
		if err := w.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	_, session, _ := w.post(first, "", hello)
	answered := make(chan *response)
	go func() {
		answered <- w.call(first, session, "runtime_execute",
			`{"repoId":"app","runtime":"shell","code":"touch begun; until [ -e end ]; do sleep 0.05; done; echo survived","outputMode":"summary"}`)
	}()
	sandboxtest.Eventually(t, 20*time.Second, "the job runs", func() bool {
		_, err := os.Stat(p.repo + "/begun")
		return err == nil
	})

	write(string(before) + "http:\n  session_idle: soon\n")
	hangUp()
	logs(t, w.Command, `"ERROR"`, "configuration not reloaded", file+":6:17", "`session_idle`")
	if status, _, _ := w.post(first, "", hello); status != http.StatusOK {
		t.Errorf("a token after a faulty file: %d", status)
	}

	second, hash := config.NewToken()
	write(strings.Replace(string(before), "principals: [", fmt.Sprintf("principals: [{name: b, token_sha256: \"%x\"}, ", hash), 1) +
		"runtime:\n  queue_length: 7\nmax_jobs: 9\n")
	hangUp()
	logs(t, w.Command, `"WARN"`, "needs a restart", `"runtime.queue_length"`)
	logs(t, w.Command, "configuration reloaded", `"principals":2`, `"needs_restart":["runtime.queue_length"]`)
	for _, token := range []string{first, second} {
		if status, _, _ := w.post(token, "", hello); status != http.StatusOK {
			t.Errorf("a token: %d", status)
		}
	}
	if err := os.WriteFile(p.repo+"/end", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if a := <-answered; !strings.Contains(string(a.Result.Structured), "survived") {
		t.Errorf("the request that was under way: %s", a.Result.Structured)
	}
}

// TestExecServerHangUp: SIGHUP does not end corral exec-server.
func TestExecServerHangUp(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	s := p.execSite(t, daemon(t), overWeb, "")
	if err := s.server.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	logs(t, s.server, "configuration reloaded", `"needs_restart":null`)
}
