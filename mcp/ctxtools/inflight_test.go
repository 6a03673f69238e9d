package ctxtools

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/test/mcptest"
	"corral/internal/test/sandboxtest"
	"corral/job"
	"corral/mcp/execute"
	"corral/mcp/tool"
	"corral/store/artifact"
	"corral/store/index"
)

// noted makes x log to a buffer, and returns that.
func (x *Suite) noted() *bytes.Buffer {
	var b bytes.Buffer
	x.Log = slog.New(slog.NewTextHandler(&b, nil))
	return &b
}

// TestCloseLeavesStuckIndex: an index that blocks, even one that ignores its context, does not keep Close from
// returning, whatever the backlog.
func TestCloseLeavesStuckIndex(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		f := newControlledRunner()
		f.Stdout = ""
		x, k := f.ctx(t)
		x.MaxBackground = 100
		k.hold = make(chan struct{})
		x.pending.Settle = 50 * time.Millisecond
		x.pending.Stop = sandboxtest.Slow(10 * time.Second) // an index that ends when told to, on a busy machine
		if deaf {
			x.Knowledge = stuckKnowledge{k}
			x.pending.Stop = 50 * time.Millisecond
		}
		log := x.noted()
		ctx := mcptest.AsUser(t.Context())
		for n := range maxEach + 2 {
			id := begin(t, ctx, x)
			a := f.act(t, n)
			write(t, a.stdout, "some\n")
			a.end <- job.Result{Status: job.Success}
			sandboxtest.Eventually(t, 10*time.Second, "the job has ended", func() bool {
				b, err := x.FindProcess(tool.CallerOf(ctx), id)
				if err != nil {
					t.Fatal(err)
				}
				s, _ := b.State()
				return s.Record != nil && s.Record.Request == nil
			})
			if n < maxEach {
				continue
			}
			v, r := callCtxJob(t, ctx, x, id, `"action":"status"`)
			if v["indexReason"] != errFull.Error() || v["artifactHandle"] == nil || !strings.HasSuffix(r.Text, "; its output is not indexed: "+errFull.Error()) {
				t.Errorf("%q %v", r.Text, v)
			}
		}
		last := begin(t, ctx, x) // still running
		x.Close()
		if v, _ := callCtxJob(t, ctx, x, last, `"action":"status"`); v["status"] != "cancelled" {
			t.Errorf("%v", v)
		}
		if len(k.names(testBase)) != 0 {
			t.Error("output was indexed")
		}
		close(k.hold)
		sandboxtest.Eventually(t, 10*time.Second, "nothing is being indexed", func() bool { return x.pending.Count(testBase) == 0 })
		if !strings.Contains(log.String(), "output was not indexed") || strings.Contains(log.String(), "still being indexed") != deaf {
			t.Errorf("deaf %t: %s", deaf, log)
		}
	}
}

// A stuckKnowledge ignores the end of its context.
type stuckKnowledge struct{ *memoryKnowledge }

func (k stuckKnowledge) Add(context.Context, index.Base, index.Source, io.Reader) (index.Added, error) {
	<-k.hold
	return index.Added{}, errors.New("it was stuck")
}

// TestSlowIndexingContinuesAfterReply: a reply does not wait long for indexing, and the output can be found later.
func TestSlowIndexingContinuesAfterReply(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Stdout = logLines(301, "refused")
	x, k := newCtx(t, f)
	k.hold = make(chan struct{})
	x.patience = time.Millisecond
	v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"shell","code":"x","intent":"refused"}`)
	want := "Output: " + kilobytes(int64(len(f.Stdout))) + ", still being indexed.\n\nUse ctx_search(queries: [...], source: \"execute:shell\") later to find what is in it."
	if r.Text != want || r.IsError || v["indexReason"] != "still being indexed" || v["indexed"] != nil {
		t.Errorf("%q %v", r.Text, v)
	}
	q := `{"artifactHandle":"` + v["artifactHandle"].(string) + `","match":"fuzzy","queryTerms":["refused"]}`
	s, _ := x.Outputs.(*artifact.Store)
	if v, _ := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &execute.QueryOutput{Artifacts: s, Repos: []string{"app"}, Index: x.Fuzzy()}, q); v["code"] != tool.CodeUnavailable {
		t.Errorf("fuzzy: %v", v)
	}
	close(k.hold)
	x.waitIndexed(t.Context(), testBase)
	if names := k.names(testBase); !slices.Equal(names, []string{"execute:shell#1"}) {
		t.Errorf("knowledge base has %q", names)
	}
}

// TestCancelledCallIsNotIndexed: the output of a cancelled call is not indexed.
func TestCancelledCallIsNotIndexed(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Stdout = logLines(301, "refused")
	x, k := newCtx(t, f)
	k.hold = make(chan struct{})
	ctx, cancel := context.WithCancel(mcptest.AsUser(t.Context()))
	done := make(chan error)
	go func() {
		_, err := (&Execute{x}).Call(ctx, []byte(`{"language":"shell","code":"x","intent":"refused"}`))
		done <- err
	}()
	sandboxtest.Eventually(t, 10*time.Second, "the output is being indexed", func() bool { return x.indexing(testBase) == 1 })
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	x.waitIndexed(t.Context(), testBase)
	if n := len(k.names(testBase)); n != 0 || x.indexing(testBase) != 0 {
		t.Errorf("%d sources", n)
	}
}

// TestPurgeDropsPendingIndexing: output being indexed or queued at a purge does not appear afterwards.
func TestPurgeDropsPendingIndexing(t *testing.T) {
	f := mcptest.NewFakeRunner()
	f.Stdout = logLines(201, "refused")
	x, k := newCtx(t, f)
	k.hold = make(chan struct{})
	for range maxRunning + 3 {
		mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"shell","code":"x"}`)
	}
	other := inSession(t.Context(), "user:eve", "s1")
	mcptest.CallTool(t, other, &Execute{x}, `{"language":"shell","code":"x"}`)
	_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Purge{x}, `{"confirm":true}`)
	if r.IsError || x.indexing(testBase) != 0 {
		t.Errorf("%q, %d are being indexed", r.Text, x.indexing(testBase))
	}
	mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Execute{x}, `{"language":"shell","code":"x"}`)
	close(k.hold)
	x.Close()
	if names := k.names(testBase); len(names) != 1 {
		t.Errorf("knowledge base has %q, want only what came after the purge", names)
	}
	if names := k.names(index.Base{Repo: "app", Principal: "user:eve"}); len(names) != 1 {
		t.Errorf("another principal's has %q", names)
	}
}

// TestFuzzyStream: if one stream of an artifact is indexed, fuzzy has the other one indexed, once.
func TestFuzzyStream(t *testing.T) {
	x, s := (&scriptRunner{}).ctx(t)
	handle := mcptest.StoreOutput(t, s, fuzzyStdout(), fuzzyStderr)
	if _, err := x.indexSource(t.Context(), "app", "user:ada", index.Source{Label: "execute:shell", Artifact: handle, Stream: artifact.Stdout}); err != nil {
		t.Fatal(err)
	}
	tool := &execute.QueryOutput{Artifacts: s, Repos: []string{"app"}, Index: x.Fuzzy()}
	for range 2 {
		v, _ := mcptest.CallTool(t, mcptest.AsUser(t.Context()), tool, `{"artifactHandle":"`+handle+`","match":"fuzzy","contextLines":0,"queryTerms":["quagga"]}`)
		if got := excerptLines(v); !slices.Equal(got, []string{"stdout 123", "stderr 2"}) {
			t.Errorf("%v", v)
		}
	}
	if stats, err := x.Knowledge.Stats(t.Context(), testBase); err != nil || stats.Sources != 2 {
		t.Errorf("%+v, %v", stats, err)
	}
}

// TestCtxIndexRedacts: ctx_index redacts secrets in a text unless Plain is set.
func TestCtxIndexRedacts(t *testing.T) {
	key := "AKIA" + "IOSFODNN7EXAMPLE"
	for _, plain := range []bool{false, true} {
		f := mcptest.NewFakeRunner()
		x, k := newCtx(t, f)
		x.Plain, x.Secrets = plain, []string{"correct horse battery"}
		mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Index{x}, `{"content":"id `+key+` and correct horse battery"}`)
		got := k.sections[testBase][0].Text
		if strings.Contains(got, key) != plain || strings.Contains(got, "horse") != plain || !strings.HasPrefix(got, "id ") {
			t.Errorf("plain %t: %q", plain, got)
		}
	}
}

// TestCtxIndexName: a text cannot take the name of a job's output.
func TestCtxIndexName(t *testing.T) {
	f := mcptest.NewFakeRunner()
	x, k := newCtx(t, f)
	k.err = index.ErrTaken
	v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Index{x}, `{"content":"x","source":"execute:shell#1"}`)
	details, _ := v["details"].(map[string]any)
	if v["code"] != tool.CodeInvalid || r.Text != `source: "execute:shell#1" is the name of a job's output: choose another` || details["argument"] != "source" {
		t.Errorf("%q %v", r.Text, v)
	}
}

// TestBackgroundLimitOfAllPrincipals: the background jobs of all principals together are limited.
func TestBackgroundLimitOfAllPrincipals(t *testing.T) {
	f := newControlledRunner()
	x, _ := f.ctx(t)
	x.MaxBackgroundAll = 2
	begin(t, inSession(t.Context(), "user:ada", "s1"), x)
	begin(t, inSession(t.Context(), "user:eve", "s1"), x)
	v, r := mcptest.CallTool(t, inSession(t.Context(), "user:bob", "s1"), &Execute{x}, inBackground)
	if !r.IsError || v["code"] != tool.CodeDenied || !strings.HasPrefix(r.Text, "background: the server is running its maximum") {
		t.Errorf("got %q", r.Text)
	}
	f.act(t, 1).end <- job.Result{Status: job.Success}
	sandboxtest.Eventually(t, 10*time.Second, "the job has ended", func() bool { return !runs(x, "user:eve") })
	begin(t, inSession(t.Context(), "user:bob", "s1"), x)
}

// TestEndedJobDropsCode: code and arguments of an ended job are dropped.
func TestEndedJobDropsCode(t *testing.T) {
	f := newControlledRunner()
	x, _ := f.ctx(t)
	ctx := mcptest.AsUser(t.Context())
	id := begin(t, ctx, x)
	b, err := x.FindProcess(tool.CallerOf(ctx), id)
	if err != nil {
		t.Fatal(err)
	}
	f.act(t, 0).end <- job.Result{Status: job.Success}
	sandboxtest.Eventually(t, 10*time.Second, "the code of the ended job was dropped", func() bool {
		s, _ := b.State()
		return s.Record != nil && s.Record.Request == nil
	})
	if s, _ := b.State(); s.Request.Code != nil || s.Request.Env != nil || s.Record.Decision.Spec.Args != nil || s.Caller.Progress != nil {
		t.Errorf("%+v", s.Job)
	}
	if v, _ := callCtxJob(t, ctx, x, id, `"action":"status"`); v["status"] != "success" || v["runtime"] != "shell" || v["source"] != "execute:shell" {
		t.Errorf("%v", v)
	}
}
