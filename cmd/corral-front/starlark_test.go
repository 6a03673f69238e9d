package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// A scripted is the reply of starlark_run.
type scripted struct {
	Stdout        *string
	Code, Message string
	Details       struct{ Position, Backtrace, Stdout, Rule, AuditHash string }

	isError bool
	raw     string // structuredContent
	text    string
	at      time.Time
}

func (h *host) scripted(a *response) *scripted {
	h.t.Helper()
	s := &scripted{isError: a.Result.IsError, raw: string(a.Result.Structured), at: a.at}
	if err := json.Unmarshal(a.Result.Structured, s); err != nil {
		h.t.Fatalf("%s: %v", a.Result.Structured, err)
	}
	for _, block := range a.Result.Content {
		s.text += block.Text
	}
	if s.isError != (s.Stdout == nil) || s.isError != (s.Code != "") {
		h.t.Errorf("neither a reply nor an error: %.300s", s.raw)
	}
	return s
}

// starlark calls starlark_run.
func (h *host) starlark(arguments object) *scripted {
	h.t.Helper()
	return h.scripted(h.must("tools/call", object{"name": "starlark_run", "arguments": arguments}))
}

// computes checks that the server still computes.
func (h *host) computes() {
	h.t.Helper()
	if s := h.starlark(object{"source": "emit(str(6 * 7))", "limits": within(2_000, 1)}); s.raw != `{"stdout":"42"}` || s.text != s.raw {
		h.t.Errorf("the next call: %s", s.raw)
	}
}

func within(ms, kb int) object { return object{"wall_ms": ms, "output_kb": kb} }

// TestStarlark checks that a program's result and failure come through the jail, and that it sees no repository.
func TestStarlark(t *testing.T) {
	p, d, h := served(t, "")
	s := h.starlark(object{"source": "print('printed-nowhere')\nemit(read_input())", "input": "a\u0000b\u2028\r\nü", "limits": within(20_000, 1)})
	if s.Stdout == nil || *s.Stdout != "a\u0000b\u2028\r\nü" {
		t.Errorf("%s", s.raw)
	}
	s = h.starlark(object{"source": "def f(x):\n  return 1 // x\nemit('so far')\nf(0)", "limits": within(20_000, 1)})
	if d := s.Details; s.Code != "EVAL_ERROR" || d.Position != "script.star:2:12" || d.Stdout != "so far" || !strings.Contains(d.Backtrace, "script.star:4:2: in <toplevel>\n  script.star:2:12: in f\n") {
		t.Errorf("%s", s.raw)
	}
	if strings.Contains(h.log.String(), "printed-nowhere") {
		t.Errorf("output of print is in the diagnostic log: %s", h.log.String())
	}
	entries, err := os.ReadDir(p.repo)
	if log := audited(t, d); err != nil || len(entries) != 0 || !strings.Contains(log, `"tool":"starlark_run"`) || !strings.Contains(log, `"workspace":"none"`) {
		t.Errorf("%v, %d entries in the repository, audit log: %.500s", err, len(entries), log)
	}
}

// bombs are programs that an interpreter in the server's own process would not survive, or could not stop: one for each way to end.
// Package starlark tests many more with the same interpreter.
func bombs() map[string]struct {
	source string
	codes  []string // any of these
} {
	type bomb = struct {
		source string
		codes  []string
	}
	memory, late, mistake := "MEMORY_LIMIT", "TIMEOUT", "EVAL_ERROR"
	return map[string]bomb{
		"a list":                    {"x = [0] * 1000000000", []string{memory}},
		"a string that doubles":     {"s = 'x'\nwhile True: s += s", []string{memory, mistake}},
		"an endless loop":           {"while True: pass", []string{late}},
		"elif":                      {"if 0: pass\n" + strings.Repeat("elif 0: pass\n", 20_000), []string{mistake}},
		"output":                    {"while True: emit('x' * 1000)", []string{"OUTPUT_LIMIT"}},
		"a sort that takes forever": {"sorted(range(1 << 16), key = lambda x: all(range(1, 1 << 60)))", []string{late}},
	}
}

// rss returns the resident memory of a process in kB, from /proc/PID/status.
func rss(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "\nVmRSS:")
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(strings.Fields(line)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestStarlarkBombs checks that each bomb is a clear error in time, that the memory of server and supervisor does not
// grow, and that the next call works.
func TestStarlarkBombs(t *testing.T) {
	_, d, h := served(t, "starlark: {memory: 128MiB}\n")
	h.computes()
	front, supervisor := rss(t, h.cmd.Process.Pid), rss(t, d.PID())
	for name, bomb := range bombs() {
		t.Run(name, func(t *testing.T) {
			wall := 30 * time.Second // time for a busy machine to reach the bomb
			if slices.Contains(bomb.codes, "TIMEOUT") {
				wall = time.Second
			}
			begun := time.Now()
			s := h.starlark(object{"source": bomb.source, "limits": within(int(wall/time.Millisecond), 64)})
			late := s.at.Sub(begun) - wall
			if !slices.Contains(bomb.codes, s.Code) || s.Message == "" {
				t.Errorf("%.300s", s.raw)
			}
			t.Logf("%s, %v after its deadline: %s", s.Code, late, s.Message)
			if late > sandboxtest.Slow(250*time.Millisecond)+busy {
				t.Errorf("answered %v late", late)
			}
			h.computes()
		})
	}
	for name, grown := range map[string]int{"server": rss(t, h.cmd.Process.Pid) - front, "supervisor": rss(t, d.PID()) - supervisor} {
		t.Logf("the %s's memory grew by %d kB", name, grown)
		if grown > 16<<10 {
			t.Errorf("the %s's memory grew by %d kB", name, grown)
		}
	}
}
