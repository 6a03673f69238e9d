package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/internal/config"
	"corral/internal/test/sandboxtest"
)

// TestServeReload: SIGHUP makes corral serve use the repositories and rules of its configuration as it is now. Jobs that run end
// as they would have. A session that works in a repository by default is not moved to another one. A faulty file changes nothing.
func TestServeReload(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	lib := filepath.Join(p.dir, "lib")
	if err := errors.Join(os.Mkdir(lib, 0o755), os.Chown(lib, p.uid, p.uid)); err != nil {
		t.Fatal(err)
	}
	token, hash := config.NewToken()
	file := p.config(t, "")
	write := func(repos, more string) {
		t.Helper()
		text := fmt.Sprintf("version: 1\nrepos: [%s]\nprincipals: [{name: a, token_sha256: \"%x\"}]\n%s", repos, hash, more)
		if err := errors.Join(os.WriteFile(file+".new", []byte(text), 0o644), os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
	}
	appEntry, libEntry := "{id: app, path: "+p.repo+"}", "{id: lib, path: "+lib+"}"
	write(appEntry, "")
	w := p.webAt(t, d, file)
	reload := func() {
		t.Helper()
		before := strings.Count(w.Err.String(), "reloaded")
		if err := syscall.Kill(w.Process.Pid, syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		sandboxtest.Eventually(t, 20*time.Second, "the configuration is read again", func() bool {
			return strings.Count(w.Err.String(), "reloaded") > before
		})
	}
	_, session, _ := w.post(token, "", hello)
	h := &host{t: t}
	run := func(session, repo, code string) string {
		t.Helper()
		a := w.call(token, session, "runtime_execute", `{"repoId":"`+repo+`","runtime":"shell","outputMode":"summary","code":"`+code+`"}`)
		return string(a.Result.Structured)
	}
	byDefault := func(session string) string {
		return string(w.call(token, session, "ctx_execute", `{"language":"shell","code":"pwd"}`).Result.Structured)
	}
	if got := byDefault(session); !strings.Contains(got, p.repo) {
		t.Fatal(got)
	}
	running := make(chan string, 1)
	_, busy, _ := w.post(token, "", hello)
	go func() { running <- run(busy, "app", "touch up; until [ -e go ]; do sleep 0.05; done; echo well") }()
	sandboxtest.Eventually(t, 20*time.Second, "the job runs", func() bool { _, err := os.Stat(filepath.Join(p.repo, "up")); return err == nil })

	write(libEntry, "")
	reload()
	if got := run(session, "lib", "pwd"); !strings.Contains(got, lib) {
		t.Errorf("an added repository: %s", got)
	}
	if got := run(session, "app", "pwd"); !strings.Contains(got, "the operator has removed it from the configuration") {
		t.Errorf("a removed repository: %s", got)
	}
	if got := byDefault(session); !strings.Contains(got, "app, which this session has used, is not served any more") {
		t.Errorf("the default of a session was removed: %s", got)
	}
	_, fresh, _ := w.post(token, "", hello)
	if got := byDefault(fresh); !strings.Contains(got, lib) {
		t.Errorf("the default of a new session: %s", got)
	}
	if err := os.WriteFile(filepath.Join(p.repo, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := <-running; !strings.Contains(got, `"stdoutSummary":"well\n"`) {
		t.Errorf("the job that ran during the reload: %s", got)
	}

	write(appEntry, "runtime: {max_duration: soon}\n")
	reload()
	if got := run(session, "lib", "pwd"); !strings.Contains(got, lib) || !strings.Contains(w.Err.String(), "max_duration") {
		t.Errorf("a faulty file: %s", got)
	}
	write(libEntry, "runtime: {runtimes: [python]}\n")
	reload()
	if o := h.outcome(w.call(token, session, "runtime_execute", `{"repoId":"lib","runtime":"shell","code":"true"}`)); o.Status != "denied" {
		t.Errorf("rules: %+v", o)
	}
}
