package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
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
