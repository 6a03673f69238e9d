package execute

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"corral/internal/test/mcptest"
	"corral/job"
	"corral/mcp/tool"
)

// minimal calls runtime_execute by a name in mode minimal, with a program that writes stdout and stderr.
func minimal(t *testing.T, called, stdout, stderr string) map[string]any {
	t.Helper()
	f := mcptest.NewFakeRunner()
	f.Stdout, f.Stderr = stdout, stderr
	c := tool.CallerOf(mcptest.AsUser(t.Context()))
	c.Called = called
	v, _ := mcptest.CallTool(t, tool.WithCaller(t.Context(), c), executeTool(f, mcptest.Store(t)), `{"repoId":"app","runtime":"shell","code":"x"}`)
	return v
}

// TestMinimalShort: by the undotted name, mode minimal has output of at most 4 KiB as it is; by the dotted one it never has any.
func TestMinimalShort(t *testing.T) {
	full := strings.Repeat("x", 4000)
	for _, tt := range []struct{ stdout, stderr string }{
		{"", ""}, {"one\n", "two"}, {full, strings.Repeat("y", 96)}, {"", full}, {"\xff\x00", ""},
	} {
		v := minimal(t, "runtime_execute", tt.stdout, tt.stderr)
		if v["stdout"] != tool.UTF8(tt.stdout) || v["stderr"] != tool.UTF8(tt.stderr) || v["outputBytes"] != float64(len(tt.stdout)+len(tt.stderr)) {
			t.Errorf("%.20q and %.20q: %.200v", tt.stdout, tt.stderr, v)
		}
		v = minimal(t, executeDotted, tt.stdout, tt.stderr)
		if v["stdout"] != nil || v["stderr"] != nil || v["outputBytes"] != float64(len(tt.stdout)+len(tt.stderr)) {
			t.Errorf("dotted, %.20q: %.200v", tt.stdout, v)
		}
	}
}

// TestMinimalLong: longer output is shown as its first and last lines, with counts, in the same size.
func TestMinimalLong(t *testing.T) {
	var lines strings.Builder
	for n := range 1000 {
		fmt.Fprintf(&lines, "line %d\n", n)
	}
	for _, tt := range []struct{ stdout, stderr, first, last, wantErr string }{
		{lines.String(), "", "line 0\nline 1\n", "line 998\nline 999\n", ""},
		{lines.String(), "two\n", "line 0\nline 1\n", "line 998\nline 999\n", "two\n"},
		{strings.Repeat("ä", 50_000), "", "äää", "äää", ""},
		{strings.Repeat("z", 4000) + "\n" + strings.Repeat("z", 4000), "", "zzz", "zzz", ""},
	} {
		v := minimal(t, "runtime_execute", tt.stdout, tt.stderr)
		got, _ := v["stdout"].(string)
		if !strings.HasPrefix(got, tt.first) || !strings.HasSuffix(got, tt.last) || v["stderr"] != tt.wantErr || len(got) > maxShort || len(got) < maxShort/3 || !utf8.ValidString(got) {
			t.Errorf("%.20q: %d bytes: %.100q … %.100q", tt.stdout, len(got), got, got[max(0, len(got)-100):])
		}
		head, rest, ok := strings.Cut(got, "… ")
		var left, bytes int
		_, err := fmt.Sscanf(rest, "%d lines, %d bytes left out …", &left, &bytes)
		_, tail, _ := strings.Cut(rest, "left out …\n")
		if !ok || err != nil || left < 1 || bytes != len(tt.stdout)-len(strings.TrimSuffix(head, "\n"))-len(tail) && bytes != len(tt.stdout)-len(head)-len(tail) {
			t.Errorf("%.20q: %d lines, %d bytes, %v", tt.stdout, left, bytes, err)
		}
		if strings.HasPrefix(tt.stdout, "line") && left+strings.Count(head+tail, "\n") != 1000 {
			t.Errorf("%d lines left out of %q", left, got)
		}
	}
	both := minimal(t, "runtime_execute", lines.String(), lines.String())
	if len(both["stdout"].(string))+len(both["stderr"].(string)) > maxShort {
		t.Errorf("both: %v", both)
	}
}

// TestMinimalTimeout: what was written before a timeout or a limit is in the reply.
func TestMinimalTimeout(t *testing.T) {
	for _, result := range []job.Result{
		{Status: job.Timeout, ExitCode: -1, Signal: 9}, {Status: job.Failure, ExitCode: -1, Signal: 9, Limit: job.LimitMemory},
	} {
		f := mcptest.NewFakeRunner()
		f.Stdout, f.Stderr, f.Result = "begun\n", "warned\n", result
		v, _ := mcptest.CallTool(t, mcptest.AsUser(t.Context()), executeTool(f, nil), `{"repoId":"app","runtime":"shell","code":"x"}`)
		if v["stdout"] != "begun\n" || v["stderr"] != "warned\n" {
			t.Errorf("%s: %v", result.Status, v)
		}
	}
}
