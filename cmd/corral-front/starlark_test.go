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
	if s := h.starlark(object{"source": "emit(str(6 * 7))"}); s.raw != `{"stdout":"42"}` || s.text != s.raw {
		h.t.Errorf("the next call: %s", s.raw)
	}
}

func within(ms, kb int) object { return object{"wall_ms": ms, "output_kb": kb} }

// TestStarlark checks results and errors of programs, from end to end.
func TestStarlark(t *testing.T) {
	p, d, h := served(t, "")
	long := strings.Repeat("ü0123456789\n", 4<<20/13)
	for _, tt := range []struct {
		name, source, input string
		want                string // stdout, or the beginning of code and message
	}{
		{"nothing", "", "", ""},
		{"echo", "emit(read_input())", "a\u0000b\u2028\r\nü", "a\u0000b\u2028\r\nü"},
		{"no input", "emit(read_input())", "", ""},
		{"long input", "emit(str(len(read_input().splitlines())))", long, strconv.Itoa(4 << 20 / 13)},
		{"half of a character", "emit('ü'[:1] + 'x')", "", "\uFFFDx"},
		{"print", "print('printed-nowhere')\nemit('x')", "", "x"},
		{"a syntax error", "x = (", "", "EVAL_ERROR: got end of file"},
		{"a mistake", "def f(x):\n  return 1 // x\nemit('so far')\nf(0)", "", "EVAL_ERROR: floored division by zero"},
		{"recursion", "def f(): f()\nf()", "", "EVAL_ERROR: function f called recursively"},
		{"fail", "fail('on purpose')", "", "EVAL_ERROR: fail: on purpose"},
		{"time", "while True: pass", "", "TIMEOUT: the script did not end within 300 ms"},
		{"output", "for i in range(1000, 3000): emit('%d\\n' % i)", "", "OUTPUT_LIMIT: the script emitted more than 1024 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wall := 20_000
			if tt.name == "time" {
				wall = 300
			}
			s := h.starlark(object{"source": tt.source, "input": tt.input, "limits": within(wall, 1)})
			if code, message, isError := strings.Cut(tt.want, ": "); isError {
				if s.Code != code || !strings.HasPrefix(s.Message, message) {
					t.Errorf("%s", s.raw)
				}
			} else if s.Stdout == nil || *s.Stdout != tt.want {
				t.Errorf("%.200s", s.raw)
			}
		})
	}
	s := h.starlark(object{"source": "def f(x):\n  return 1 // x\nemit('so far')\nf(0)", "limits": within(20_000, 1)})
	if d := s.Details; d.Position != "script.star:2:12" || d.Stdout != "so far" || !strings.Contains(d.Backtrace, "script.star:4:2: in <toplevel>\n  script.star:2:12: in f\n") {
		t.Errorf("%s", s.raw)
	}
	s = h.starlark(object{"source": "for i in range(1000, 3000): emit('%d\\n' % i)", "limits": within(5000, 1)})
	if out := s.Details.Stdout; len(out) != 1024 || !strings.HasPrefix(out, "1000\n1001\n") || !strings.HasSuffix(out, "\n1204") {
		t.Errorf("%s", s.raw)
	}
	for _, arguments := range []object{
		{},
		{"source": "", "repoId": "app"},
		{"source": "", "caps": object{"net": object{}}},
		{"source": "", "limits": within(0, 1)},
		{"source": "", "limits": within(1, 2048)},
		{"source": strings.Repeat("#", 256<<10+1)},
		{"source": "", "input": long + "0123456789abc"},
	} {
		if s := h.starlark(arguments); s.Code != "INVALID_REQUEST" {
			t.Errorf("%s", s.raw)
		}
	}
	if a := h.must("tools/call", object{"name": "code.sandbox.starlark.run", "arguments": object{"source": "emit('dotted')", "caps": object{}}}); string(a.Result.Structured) != `{"stdout":"dotted"}` {
		t.Errorf("%s", a.Result.Structured)
	}
	if strings.Contains(h.log.String(), "printed-nowhere") {
		t.Errorf("output of print is in the diagnostic log: %s", h.log.String())
	}
	entries, err := os.ReadDir(p.repo)
	if log := audited(t, d); err != nil || len(entries) != 0 || !strings.Contains(log, `"tool":"starlark_run"`) || !strings.Contains(log, `"workspace":"none"`) {
		t.Errorf("%v, %d entries in the repository, audit log: %.500s", err, len(entries), log)
	}
}

// bombs are programs that an interpreter in the server's own process would not survive, or could not stop.
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
		"lists":                     {"x = []\nwhile True: x.append([0] * 100000)", []string{memory, late}},
		"a string that doubles":     {"s = 'x'\nwhile True: s += s", []string{memory, mistake}},
		"a list of all numbers":     {"x = list(range(1 << 40))", []string{memory}},
		"an integer":                {"x = 7\nwhile True: x *= x", []string{memory, late, mistake}},
		"an endless loop":           {"while True: pass", []string{late}},
		"all":                       {"all(range(1, 1 << 60))", []string{late}},
		"max":                       {"max(range(1 << 60))", []string{late}},
		"a long number":             {"int('9' * 30000000)", []string{late}},
		"a deep list":               {"x = []\nfor i in range(300000): x = [x]\nemit(str(x))", []string{late, mistake, memory}},
		"comparing deep lists":      {"x, y = [], []\nfor i in range(300000): x, y = [x], [y]\nx == y", []string{late, mistake, memory}},
		"elif":                      {"if 0: pass\n" + strings.Repeat("elif 0: pass\n", 20_000), []string{mistake}},
		"a sum":                     {"x = 1" + strings.Repeat("+1", 130_000), []string{mistake}},
		"brackets":                  {"x = " + strings.Repeat("[", 100_000), []string{mistake}},
		"output":                    {"while True: emit('x' * 1000)", []string{"OUTPUT_LIMIT"}},
		"much output at once":       {"emit('x' * 500000000)", []string{"OUTPUT_LIMIT", memory}},
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
