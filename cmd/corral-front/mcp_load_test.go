package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// audited returns the audit log, which must verify.
func audited(t *testing.T, d *sandboxtest.Supervisor) string {
	t.Helper()
	if code, stdout, stderr := front(t, "audit", "verify", "--state", d.State); code != 0 {
		t.Errorf("audit verify: %d, %s %s", code, stdout, stderr)
	}
	_, stdout, stderr := front(t, "audit", "export", "--json", "--state", d.State)
	if stdout == "" {
		t.Errorf("audit export: %s", stderr)
	}
	return stdout
}

// peak returns the peak memory of a process in kB, from /proc/PID/status.
func peak(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "\nVmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(strings.Fields(line)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestMemory checks that the server does not buffer output: 200 MB of it, part of it one line, cost at most 16 MiB.
func TestMemory(t *testing.T) {
	_, _, h := served(t, "")
	size := 200 * sandboxtest.Scale(1_000_000)
	h.shell("echo warm; head -c 1000000 /dev/zero")
	before := peak(t, h.cmd.Process.Pid)
	for name, code := range map[string]string{
		"lines":    fmt.Sprintf("yes 'a line of some length, as programs write them' | head -c %d", size),
		"one line": fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", size),
		"both":     fmt.Sprintf("head -c %d /dev/urandom >&2 & yes | head -c %d; wait", size/2, size/2),
	} {
		o := h.execute(object{"runtime": "shell", "code": code, "outputMode": "summary", "queryTerms": []string{"nowhere"}, "timeoutMs": 60_000})
		if o.Status != "success" || o.Truncation.TotalStdoutBytes+o.Truncation.TotalStderrBytes != int64(size) {
			t.Errorf("%s: %s %+v", name, o.Status, o.Truncation)
		}
		after := peak(t, h.cmd.Process.Pid)
		t.Logf("%s: the server's memory grew by %d kB from %d kB, in %d ms", name, after-before, before, o.DurationMs)
		if after-before > 16<<10 {
			t.Errorf("%s: the server's memory grew by %d kB", name, after-before)
		}
	}
}

// jobs counts the processes of the host that have mark in their command line.
func marked(mark string) int {
	found := 0
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		if b, err := os.ReadFile(name); err == nil && strings.Contains(string(b), mark) {
			found++
		}
	}
	return found
}

// TestDeaths checks that no job survives whichever process is killed, at any time, and that the other processes still
// serve.
func TestDeaths(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	config := p.config(t, "")
	for range sandboxtest.Scale(5) {
		mark := fmt.Sprintf("mark-%d-%d", os.Getpid(), serial.Add(1))
		h := connect(t, p.front("mcp", "--config", config, "--supervisor", d.Socket))
		var answers []<-chan *response
		for range 4 {
			_, answer := h.started(object{"runtime": "shell", "code": "setsid sleep 600 & exec -a \"$1\" sleep 600", "args": []string{mark}})
			answers = append(answers, answer)
		}
		time.Sleep(rand.N(sandboxtest.Slow(100 * time.Millisecond))) // the test varies this time
		if err := h.cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		for _, answer := range answers {
			if a := <-answer; a != nil {
				t.Errorf("answered: %s", a.Result.Structured)
			}
		}
		sandboxtest.Eventually(t, time.Second+busy, "the jobs of a killed server are gone", func() bool { return marked(mark) == 0 })
	}
	h := connect(t, p.front("mcp", "--config", config, "--supervisor", d.Socket))
	for range sandboxtest.Scale(3) {
		mark := fmt.Sprintf("mark-%d-%d", os.Getpid(), serial.Add(1))
		_, answer := h.started(object{"runtime": "shell", "code": "exec -a \"$1\" sleep 600", "args": []string{mark}})
		time.Sleep(rand.N(sandboxtest.Slow(100 * time.Millisecond))) // the test varies this time
		d.Kill()
		select {
		case a := <-answer:
			if o := h.outcome(a); o.Code != "UNAVAILABLE" || !o.isError {
				t.Errorf("%s", o.text)
			}
		case <-time.After(sandboxtest.Slow(10 * time.Second)):
			t.Fatal("no answer after the supervisor was killed")
		}
		sandboxtest.Eventually(t, time.Second+busy, "the jobs of a killed supervisor are gone", func() bool { return marked(mark) == 0 })
		if o := h.shell("true"); o.Code != "UNAVAILABLE" {
			t.Errorf("without a supervisor: %s", o.text)
		}
		d.Start(t)
		if o := h.shell("echo again"); o.out() != "again\n" {
			t.Errorf("with the next supervisor: %s", o.text)
		}
	}
	audited(t, d)
}

// TestClientGone checks that all jobs of a client end with the server, when it is told to end or when the client dies.
func TestClientGone(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := daemon(t)
	config := p.config(t, "")
	signal := func(s syscall.Signal) func(h *host) { return func(h *host) { _ = h.cmd.Process.Signal(s) } }
	for name, end := range map[string]func(h *host){
		"SIGTERM": signal(syscall.SIGTERM), "SIGINT": signal(syscall.SIGINT), "SIGHUP": signal(syscall.SIGHUP),
		"the client dies": func(h *host) {
			h.to.Close()
			h.from.Close()
		},
	} {
		mark := fmt.Sprintf("mark-%d-%d", os.Getpid(), serial.Add(1))
		h := connect(t, p.front("mcp", "--config", config, "--supervisor", d.Socket))
		h.started(object{"runtime": "shell", "code": "exec -a \"$1\" sleep 600", "args": []string{mark}})
		sandboxtest.Eventually(t, 20*time.Second, "the job runs", func() bool { return marked(mark) > 0 })
		end(h)
		select {
		case <-h.ended:
		case <-time.After(sandboxtest.Slow(20 * time.Second)):
			t.Fatalf("%s: the server still runs", name)
		}
		sandboxtest.Eventually(t, time.Second+busy, "its jobs are gone", func() bool { return marked(mark) == 0 })
	}
}
