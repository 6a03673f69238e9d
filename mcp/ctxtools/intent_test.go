package ctxtools

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/test/mcptest"
	"corral/job"
	"corral/store/index"
)

// logLines returns n lines; every fiftieth contains why.
func logLines(n int, why string) string {
	var b strings.Builder
	for i := range n {
		line := fmt.Sprintf("%06d all is well in module_%d", i, i%7)
		if i%50 == 25 {
			line = fmt.Sprintf("%06d %s", i, why)
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// TestIntent: a long output with an intent is indexed, and the matching sections are listed.
func TestIntent(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Stdout = logLines(301, "connection refused error")
	x, k := newCtx(t, f)
	v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"shell","code":"x","intent":"refused  error"}`)
	kb := fmt.Sprintf("%.1fKB", float64(len(f.Stdout))/1024)
	want := "Indexed 31 sections from \"execute:shell\" into knowledge base.\n" +
		"6 sections matched \"refused error\" (301 lines, " + kb + "):\n\n" +
		"  - 000020 all is well in module_6: 000025 connection refused error\n"
	end := "\n\nSearchable terms: first_term, second_term\n\nUse ctx_search(queries: [...]) to retrieve full content of any section."
	if !strings.HasPrefix(r.Text, want) || !strings.HasSuffix(r.Text, end) || strings.Count(r.Text, "\n  - ") != 6 || r.IsError {
		t.Errorf("got %s", r.Text)
	}
	in := v["indexed"].(map[string]any)
	if in["source"] != "execute:shell#1" || in["matched"] != 6.0 || in["sections"] != 31.0 || in["lines"] != 301.0 {
		t.Errorf("got %v", in)
	}
	if s := k.added[0]; s.Label != "execute:shell" || s.Stream != "stdout" || s.Artifact != v["artifactHandle"] || s.Fixed {
		t.Errorf("added %+v", s)
	}

	_, r = mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"shell","code":"x","intent":"no \"such\" thing"}`)
	want = "Indexed 31 sections from \"execute:shell\" into knowledge base.\n" +
		"No sections matched intent \"no \"such\" thing\" in 301-line output (" + kb + ").\n" + end[1:]
	if r.Text != want {
		t.Errorf("got %q, want %q", r.Text, want)
	}
	if names := k.names(testBase); !slices.Equal(names, []string{"execute:shell#1", "execute:shell#2"}) {
		t.Errorf("knowledge base has %q", names)
	}
}

// TestIntentCountsAndCutsLines: sections beyond the listed ones are counted, and a long line is cut around the match.
func TestIntentCountsAndCutsLines(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Stdout = logLines(1000, strings.Repeat("x", 300)+" needle "+strings.Repeat("y", 300))
	x, _ := newCtx(t, f)
	_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"shell","code":"x","intent":"Needle or needle"}`)
	if strings.Count(r.Text, "\n  - ") != 10 || !strings.Contains(r.Text, "\n20 sections matched") || !strings.Contains(r.Text, "\n  … and 10 more\n") {
		t.Errorf("got %s", r.Text)
	}
	for _, line := range strings.Split(r.Text, "\n") {
		if _, found, ok := strings.Cut(line, ": …"); strings.HasPrefix(line, "  - ") && (!ok || !strings.Contains(found, " needle ") || len([]rune(found)) > 119) {
			t.Errorf("a line is %q", line)
		}
	}
}

// TestCtxSizes: which sizes are returned as they are, indexed, or both.
func TestCtxSizes(t *testing.T) {
	for _, tt := range []struct {
		size            int
		intent          string
		raw, off, point bool // off: indexed after the reply
	}{
		{5000, "", true, true, false},
		{5000, "well", true, true, false},
		{5001, "", true, true, false},
		{5001, "well", false, false, true},
		{100 << 10, "", true, true, false},
		{100<<10 + 1, "", false, false, true},
		{3 << 20, "", false, false, true},
		{3 << 20, "well", false, false, true},
	} {
		f := mcptest.NewFakeRunner()
		f.Stdout = strings.Repeat("all is well\n", tt.size/12+1)[:tt.size]
		x, k := newCtx(t, f)
		v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"shell","code":"x","intent":"`+tt.intent+`"}`)
		if raw := r.Text == f.Stdout; raw != tt.raw || r.IsError {
			t.Errorf("%d %q: raw %t: %.200s", tt.size, tt.intent, raw, r.Text)
		}
		if _, point := v["indexed"]; point != tt.point {
			t.Errorf("%d %q: indexed %t", tt.size, tt.intent, point)
		}
		x.waitIndexed(t.Context(), testBase)
		if n := len(k.names(testBase)); n == 1 != (tt.off || tt.point) {
			t.Errorf("%d %q: %d sources", tt.size, tt.intent, n)
		}
	}
}

// TestLongOutputGetsPointer: output that is too long is replaced by a pointer to the index.
func TestLongOutputGetsPointer(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Stdout = logLines(10_000, "x")
	x, _ := newCtx(t, f)
	_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"shell","code":"x"}`)
	want := fmt.Sprintf("Indexed 1000 sections from \"execute:shell\" into knowledge base.\nThe output is too long to be shown (10000 lines, %.1fKB).\n\n", float64(len(f.Stdout))/1024) +
		"Searchable terms: first_term, second_term\n\nUse ctx_search(queries: [...]) to retrieve full content of any section."
	if r.Text != want {
		t.Errorf("got %q, want %q", r.Text, want)
	}
}

// TestIntentOfFailures: the reply to a failure says so, whatever the output.
func TestIntentOfFailures(t *testing.T) {
	f := mcptest.NewFakeRunner().ExitsWith(2)
	f.Stdout, f.Stderr = logLines(301, "refused"), "the end"
	x, _ := newCtx(t, f)
	_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"shell","code":"x","intent":"refused"}`)
	if !r.IsError || !strings.HasPrefix(r.Text, "Exit code: 2\n\nstdout:\nIndexed 31 sections") || !strings.HasSuffix(r.Text, "\n\nstderr:\nthe end") {
		t.Errorf("failure: %s", r.Text)
	}
	f.Result = job.Result{Status: job.Timeout, ExitCode: -1, Signal: 9}
	f.Decision.Spec.Limits.Wall = time.Second
	_, r = mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"shell","code":"x","intent":"refused"}`)
	if r.IsError || !strings.HasPrefix(r.Text, "Indexed 31 sections") || !strings.HasSuffix(r.Text, "\n\n_(timed out after 1000ms — partial output shown above)_\n[stderr] the end") {
		t.Errorf("timeout: %s", r.Text)
	}
	f.Result = job.Result{Status: job.Failure, ExitCode: 1}
	_, r = mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"shell","code":"x","intent":"refused"}`)
	if r.IsError || !strings.HasPrefix(r.Text, "Indexed 31 sections") {
		t.Errorf("grep: %s", r.Text)
	}
}

// TestLongErrors: long streams of a failure are cut in the middle and indexed.
func TestLongErrors(t *testing.T) {
	f := mcptest.NewFakeRunner().ExitsWith(2)
	f.Stdout, f.Stderr = "é"+strings.Repeat("ü", 100_000), "begin "+strings.Repeat("x", 1<<20)+" end"
	x, k := newCtx(t, f)
	_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"shell","code":"x"}`)
	if len(r.Text) > 110<<10 || strings.Count(r.Text, " bytes left out) ...\n") != 2 || strings.Contains(r.Text, "\uFFFD") {
		t.Errorf("%d bytes: %.200q", len(r.Text), r.Text)
	}
	if !strings.Contains(r.Text, "\n\nstderr:\nbegin xxx") || !strings.Contains(r.Text, "xxx end\n[all of it: runtime_query_output, artifactHandle runtime-app-") {
		t.Errorf("stderr: …%s", r.Text[len(r.Text)-100:])
	}
	x.waitIndexed(t.Context(), testBase)
	if names := k.names(testBase); len(names) != 2 {
		t.Errorf("knowledge base has %q", names)
	}
}

// TestReplyWithoutIndex: without an index, or if indexing fails, the reply still has the output.
func TestReplyWithoutIndex(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(x *Suite, k *memoryKnowledge)
		why    string
	}{
		{"no index", func(x *Suite, _ *memoryKnowledge) { x.Knowledge = nil }, "indexing is disabled"},
		{"no store", func(x *Suite, _ *memoryKnowledge) { x.Outputs = nil }, "there is no directory to store output in"},
		{"index fails", func(_ *Suite, k *memoryKnowledge) { k.err = errors.New("disk full") }, "disk full"},
	} {
		f := mcptest.NewFakeRunner()
		f.Stdout = logLines(301, "refused")
		x, k := newCtx(t, f)
		tt.change(x, k)
		v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"shell","code":"x","intent":"refused"}`)
		if r.IsError || r.Text != f.Stdout+"\n\n_(the output was not indexed: "+tt.why+")_" || v["indexReason"] != tt.why {
			t.Errorf("%s: %.100q … %q", tt.name, r.Text, r.Text[len(r.Text)-100:])
		}
		f.Stdout = logLines(10_000, "refused")
		_, r = mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"shell","code":"x"}`)
		if r.IsError || len(r.Text) > 101<<10 || !strings.HasPrefix(r.Text, "000000 all") || !strings.Contains(r.Text, "bytes left out") || !strings.Contains(r.Text, "009999") {
			t.Errorf("%s: %d bytes: %.100q", tt.name, len(r.Text), r.Text)
		}
		f.Stdout = logLines(200, "refused")
		if _, r = mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"shell","code":"x"}`); r.Text != f.Stdout {
			t.Errorf("%s: %.100q", tt.name, r.Text)
		}
	}
}

// TestSearchWaitsForIndexing: a search waits for indexing that began before it, but not for later indexing or other knowledge
// bases.
func TestSearchWaitsForIndexing(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Stdout = logLines(200, "refused")
	x, k := newCtx(t, f)
	k.hold = make(chan struct{})
	if _, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"shell","code":"x"}`); r.Text != f.Stdout {
		t.Errorf("got %.100s", r.Text)
	}
	x.waitIndexed(t.Context(), index.Base{Repo: "other", Principal: "user:ada"}) // must return
	waited := make(chan struct{})
	go func() {
		x.waitIndexed(t.Context(), testBase)
		close(waited)
	}()
	select {
	case <-waited:
		t.Error("a search did not wait")
	case <-time.After(20 * time.Millisecond):
	}
	if n := len(k.names(testBase)); n != 0 {
		t.Errorf("%d sources", n)
	}
	close(k.hold)
	<-waited
	if n := len(k.names(testBase)); n != 1 {
		t.Errorf("%d sources", n)
	}
}
