package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// served starts a supervisor, and a server for the place's repository.
func served(t *testing.T, sections string) (*place, *sandboxtest.Supervisor, *host) {
	t.Helper()
	return servedWith(t, sections)
}

// servedWith is served with toolchain directories.
func servedWith(t *testing.T, sections string, toolchains ...string) (*place, *sandboxtest.Supervisor, *host) {
	t.Helper()
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	o := sandboxtest.DaemonOptions{Everyone: true}
	for _, dir := range toolchains {
		o.Args = append(o.Args, "--toolchain", dir)
	}
	if len(toolchains) > 0 {
		sections += "toolchains: [" + strings.Join(toolchains, ", ") + "]\n"
	}
	d := sandboxtest.Daemon(t, o)
	return p, d, connect(t, p.front("mcp", "--config", p.config(t, sections), "--supervisor", d.Socket))
}

// busy is the delay that other programs on this machine may cause. It only tells a delay from a hang of minutes.
const busy = 10 * time.Second

// TestCancel checks that the job ends when its request is cancelled, and that there is no answer.
func TestCancel(t *testing.T) {
	p, _, h := served(t, "")
	h.shell("true")
	beat := filepath.Join(p.repo, "beat")
	id, answer := h.started(object{"runtime": "shell", "code": "while :; do date +%N > beat; done"})
	sandboxtest.Eventually(t, 20*time.Second, "the job runs", func() bool { _, err := os.Stat(beat); return err == nil })
	h.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"reason":"enough"}}`, id))
	begun := time.Now()
	still(t, beat)
	t.Logf("no process wrote %v after the cancellation; polled", time.Since(begun))
	h.must("ping", object{})
	select {
	case a := <-answer:
		t.Errorf("a cancelled request was answered: %s", a.Result.Structured)
	default:
	}
	if o := h.shell("echo next"); o.out() != "next\n" {
		t.Errorf("%+v", o)
	}
}

// still waits until no process writes to path, polling it.
func still(t *testing.T, path string) {
	t.Helper()
	var last []byte
	sandboxtest.Eventually(t, 500*time.Millisecond+busy, "the job is killed", func() bool {
		before, _ := os.ReadFile(path)
		time.Sleep(100 * time.Millisecond) // the job writes every few milliseconds
		last, _ = os.ReadFile(path)
		return bytes.Equal(before, last)
	})
}

// TestSensitive checks that the reply names changed sensitive paths.
func TestSensitive(t *testing.T) {
	p, _, h := served(t, "")
	p.file(t, ".git/hooks/pre-commit.sample", "")
	h.shell("true")
	o := h.shell("mkdir -p .git/hooks; echo x > .git/hooks/pre-commit")
	if o.Status != "success" || len(o.SensitiveChanges) == 0 || !strings.Contains(strings.Join(o.SensitiveChanges, " "), ".git/hooks/pre-commit") {
		t.Errorf("%+v", o)
	}
}
