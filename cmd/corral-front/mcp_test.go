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

// TestTimeout checks that output is kept, and that the reply comes at the deadline although another process holds the
// pipes.
func TestTimeout(t *testing.T) {
	_, _, h := served(t, "")
	h.shell("true") // creates the jail
	for _, code := range []string{"echo early; sleep 600", "trap '' TERM INT; echo early; setsid sleep 600 & sleep 600; sleep 600"} {
		begun := time.Now()
		o := h.execute(object{"runtime": "shell", "code": code, "outputMode": "summary", "timeoutMs": 400})
		late := o.at.Sub(begun) - 400*time.Millisecond
		t.Logf("%v after the deadline", late)
		if o.Status != "timeout" || o.ExitCode != nil || o.out() != "early\n" || o.isError {
			t.Errorf("%+v", o)
		}
		if late > sandboxtest.Slow(250*time.Millisecond)+busy {
			t.Errorf("the reply came %v after the deadline", late)
		}
	}
	o := h.execute(object{"runtime": "c", "code": "#include <unistd.h>\nint main(void) { write(1, \"c\", 1); return 3; }", "outputMode": "summary", "timeoutMs": 30_000})
	if o.Message == "" && (o.out() != "c" || o.ExitCode == nil || *o.ExitCode != 3) {
		t.Errorf("%+v", o)
	}
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

// TestDenied checks the order and the messages of governance.
func TestDenied(t *testing.T) {
	p, _, h := served(t, "runtime: {runtimes: [python, shell], executables: [python3, sh], max_duration: 1m}\n")
	if err := os.Symlink("/etc", filepath.Join(p.repo, "out")); err != nil {
		t.Fatal(err)
	}
	p.file(t, "plain", "", 0o644)
	for _, tt := range []struct {
		name      string
		arguments object
		want      string
	}{
		{"runtime", object{"runtime": "node", "code": "1"}, `Runtime "node" is not in the allowed runtimes list: [python, shell]`},
		{"executable of another", object{"runtime": "python", "executable": "node", "code": "1"}, `Executable "node" is not compatible with runtime "python"`},
		{"executable", object{"runtime": "shell", "executable": "bash", "code": "true"}, `Executable "bash" is not in the allowed executables list`},
		{"traversal", object{"relativeCwd": "a/../.."}, `Relative CWD "a/../.." contains path traversal or absolute path components`},
		{"absolute", object{"relativeCwd": "/etc"}, `Relative CWD "/etc" contains path traversal or absolute path components`},
		{"link", object{"relativeCwd": "out"}, `escapes repository root`},
		{"missing", object{"relativeCwd": "nope"}, `Working directory does not exist: nope`},
		{"no directory", object{"relativeCwd": "plain"}, `not a directory: plain`},
		{"timeout", object{"timeoutMs": 120_000}, `Requested timeout (120000ms) exceeds maximum (60000ms)`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			arguments := object{"runtime": "shell", "code": "echo ran"}
			for k, v := range tt.arguments {
				arguments[k] = v
			}
			o := h.execute(arguments)
			reasons := o.PolicyDecision.DeniedReasons
			if o.Status != "denied" || !o.isError || o.ExitCode != nil || o.ArtifactHandle != nil || len(reasons) != 1 || !strings.Contains(reasons[0], tt.want) {
				t.Errorf("%s: %q, %+v", o.Status, reasons, o)
			}
			if len(o.PolicyDecision.AuditHash) != 64 || !strings.Contains(strings.ReplaceAll(o.text, `\"`, `"`), tt.want) {
				t.Errorf("hash %q, text %q", o.PolicyDecision.AuditHash, o.text)
			}
		})
	}
	t.Run("disabled", func(t *testing.T) {
		d := daemon(t)
		h := connect(t, p.front("mcp", "--config", p.config(t, "runtime: {enabled: false}\n"), "--supervisor", d.Socket))
		o := h.shell("true")
		if o.Status != "denied" || o.PolicyDecision.DeniedReasons[0] != "Runtime execution is disabled in configuration (runtime.enabled = false)" {
			t.Errorf("%+v", o)
		}
	})
}

// TestFakeInterpreter checks that a program of the repository is not used as an interpreter, whatever its name.
func TestFakeInterpreter(t *testing.T) {
	p, _, h := served(t, "")
	for _, name := range []string{"python3", "bin/python3", "python"} {
		p.file(t, name, "#!/bin/sh\necho fake\n", 0o755)
	}
	if o := h.execute(object{"runtime": "python", "code": "print('real')", "outputMode": "summary"}); o.out() != "real\n" {
		t.Errorf("%+v", o)
	}
	for _, executable := range []string{"./python3", "bin/python3", filepath.Join(p.repo, "python3"), "/tmp/python3"} {
		o := h.execute(object{"runtime": "python", "executable": executable, "code": "print('real')", "outputMode": "summary"})
		if strings.Contains(o.out(), "fake") || o.Status == "success" {
			t.Errorf("%s: %+v", executable, o)
		}
	}
}

// TestSensitive checks that the reply names changed sensitive paths.
func TestSensitive(t *testing.T) {
	p, _, h := served(t, "")
	p.file(t, ".git/hooks/pre-commit.sample", "", 0o644)
	h.shell("true")
	o := h.shell("mkdir -p .git/hooks; echo x > .git/hooks/pre-commit")
	if o.Status != "success" || len(o.SensitiveChanges) == 0 || !strings.Contains(strings.Join(o.SensitiveChanges, " "), ".git/hooks/pre-commit") {
		t.Errorf("%+v", o)
	}
}

// TestRedaction checks that secrets are redacted in output, unless the operator disables it.
func TestRedaction(t *testing.T) {
	p, d, h := served(t, "")
	const key = "AKIAQWERTYUIOPASDFGH"
	if o := h.shell("echo id " + key); o.out() != "id [REDACTED:aws-key]\n" {
		t.Errorf("%q", o.out())
	}
	plain := connect(t, p.front("mcp", "--config", p.config(t, "output: {redact: false}\n"), "--supervisor", d.Socket))
	if o := plain.shell("echo id " + key); o.out() != "id "+key+"\n" {
		t.Errorf("%q", o.out())
	}
}
