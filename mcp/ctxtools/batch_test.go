package ctxtools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"corral/internal/test/mcptest"
	"corral/job"
)

// batchCall returns the arguments of ctx_batch_execute; commands are labels and codes in turn.
func batchCall(t *testing.T, rest string, commands ...string) string {
	t.Helper()
	var list []map[string]string
	for pair := range slices.Chunk(commands, 2) {
		list = append(list, map[string]string{"label": pair[0], "command": pair[1]})
	}
	raw, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return `{"commands":` + string(raw) + rest + `}`
}

// TestCtxBatch: every command runs as written, all output is indexed, and a failure does not stop the others.
func TestCtxBatch(t *testing.T) {
	m := &scriptRunner{}
	x, _ := m.ctx(t)
	v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &BatchExecute{x}, batchCall(t, `,"queries":["zebra","quagga"],"more":1`,
		"first", "lines 40\nout the zebra is loose", "second", "err the quagga died\nexit 3", "third", "out  quoted $x `y` \\n  ", "none", "exit 0x"))
	if want := []string{"lines 40\nout the zebra is loose", "err the quagga died\nexit 3", "out  quoted $x `y` \\n  ", "exit 0x"}; !slices.Equal(m.began(), want) {
		t.Errorf("ran %q", m.began())
	}
	at := regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`).ReplaceAllString(r.Text, "T")
	for _, want := range []string{
		"Executed 4 commands (43 lines, ",
		"\n\n## Commands\n\n- first: exit code 0, 41 lines, ",
		"\n- second: exit code 3, 1 line, 0.0KB\n",
		"\n\n---\n\n## zebra\n\n--- [first#1 | T] ---\n### ",
		"the zebra is loose",
		"\n\n---\n\n## quagga\n\n--- [second#1 | T] ---\n### ",
		"the quagga died",
		"\n\nUse ctx_search(queries: [...]) to retrieve full content of any section.",
	} {
		if !strings.Contains(at, want) {
			t.Errorf("no %q in %s", want, at)
		}
	}
	if r.IsError || v["text"] != r.Text {
		t.Errorf("%v", v)
	}
	commands, _ := v["commands"].([]any)
	second, _ := commands[1].(map[string]any)
	if len(commands) != 4 || second["label"] != "second" || second["exitCode"] != 3.0 || second["status"] != "failure" || second["artifactHandle"] == nil {
		t.Errorf("%v", commands)
	}
	_, r = mcptest.CallTool(t, mcptest.AsUser(t.Context()), &Search{x}, `{"query":"zebra","source":"first"}`)
	if !strings.Contains(r.Text, "the zebra is loose") {
		t.Errorf("later: %s", r.Text)
	}
}

// TestCtxBatchScope: queries search this batch by default, and everything with query_scope global.
func TestCtxBatchScope(t *testing.T) {
	x, _ := (&scriptRunner{}).ctx(t)
	tool := &BatchExecute{x}
	mcptest.CallTool(t, mcptest.AsUser(t.Context()), tool, batchCall(t, "", "old", "out an old zebra"))
	_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), tool, batchCall(t, `,"queries":"zebra"`, "new", "out a new zebra", "newer", "out another zebra"))
	if strings.Contains(r.Text, "old zebra") || !strings.Contains(r.Text, "new zebra") || !strings.Contains(r.Text, "another zebra") {
		t.Errorf("batch: %s", r.Text)
	}
	_, r = mcptest.CallTool(t, mcptest.AsUser(t.Context()), tool, batchCall(t, `,"queries":["zebra"],"query_scope":"global"`, "none", "exit 0"))
	if !strings.Contains(r.Text, "old zebra") || !strings.Contains(r.Text, "new zebra") {
		t.Errorf("global: %s", r.Text)
	}
	_, r = mcptest.CallTool(t, mcptest.AsUser(t.Context()), tool, batchCall(t, `,"queries":["zebra"]`, "silent", "exit 0"))
	if !strings.HasSuffix(r.Text, "Searched 1 query.\n\n## Commands\n\n- silent: exit code 0, 0 lines, 0.0KB\n\n---\n\n## zebra\nNo results found.") {
		t.Errorf("no output: %s", r.Text)
	}
}

// TestCtxBatchConcurrency: commands run with the requested concurrency, and the replies keep the order of the call.
func TestCtxBatchConcurrency(t *testing.T) {
	m := &scriptRunner{meet: &sync.WaitGroup{}}
	m.meet.Add(4)
	x, _ := m.ctx(t)
	var commands []string
	for n := range 4 {
		commands = append(commands, fmt.Sprintf("l%d", n), "meet\nout x")
	}
	for n := range 4 {
		commands = append(commands, fmt.Sprintf("m%d", n), "out y")
	}
	v, _ := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &BatchExecute{x}, batchCall(t, `,"concurrency":"4"`, commands...))
	if m.peak != 4 {
		t.Errorf("%d concurrent jobs", m.peak)
	}
	var labels []string
	list, _ := v["commands"].([]any)
	for _, one := range list {
		c, _ := one.(map[string]any)
		labels = append(labels, fmt.Sprint(c["label"]))
	}
	if want := []string{"l0", "l1", "l2", "l3", "m0", "m1", "m2", "m3"}; !slices.Equal(labels, want) {
		t.Errorf("%q", labels)
	}
	m = &scriptRunner{}
	x, _ = m.ctx(t)
	mcptest.CallTool(t, mcptest.AsUser(t.Context()), &BatchExecute{x}, batchCall(t, "", commands[8:]...))
	if m.peak != 1 || !slices.Equal(m.began(), []string{"out y", "out y", "out y", "out y"}) {
		t.Errorf("sequentially: %d concurrent jobs", m.peak)
	}
}

// TestCtxBatchRequeuesAtJobLimit: if the policy permits fewer concurrent jobs than requested, all commands still run.
func TestCtxBatchRequeuesAtJobLimit(t *testing.T) {
	m := &scriptRunner{places: 2}
	x, _ := m.ctx(t)
	var commands []string
	for n := range 30 {
		commands = append(commands, fmt.Sprintf("l%d", n), fmt.Sprintf("out %d", n))
	}
	v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &BatchExecute{x}, batchCall(t, `,"concurrency":8`, commands...))
	if strings.Contains(r.Text, "denied") || len(m.began()) != 30 {
		t.Errorf("%d ran: %s", len(m.began()), r.Text)
	}
	if list, _ := v["commands"].([]any); len(list) != 30 {
		t.Errorf("%d commands in the reply", len(list))
	}
}

// TestCtxBatchEndings: the reply says how each command ended.
func TestCtxBatchEndings(t *testing.T) {
	x, _ := (&scriptRunner{}).ctx(t)
	v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &BatchExecute{x}, batchCall(t, `,"timeout":400`, "late", "out partial\nlate", "denied", "deny"))
	if want := "- late: timed out after 400ms, 1 line, 0.0KB\n- denied: denied: no such thing here"; !strings.Contains(r.Text, want) || r.IsError {
		t.Errorf("no %q in %v", want, v)
	}
	_, r = mcptest.CallTool(t, mcptest.AsUser(t.Context()), &BatchExecute{x}, batchCall(t, "", "a", "deny", "b", "deny"))
	if !r.IsError || !strings.Contains(r.Text, "- a: denied: no such thing here\n- b: denied") {
		t.Errorf("all denied: %t %s", r.IsError, r.Text)
	}
}

// TestCtxBatchCancelled: after cancellation no further command starts.
func TestCtxBatchCancelled(t *testing.T) {
	m := &scriptRunner{}
	x, _ := m.ctx(t)
	ctx, cancel := context.WithCancel(mcptest.AsUser(t.Context()))
	defer cancel()
	m.cancel = cancel
	_, err := (&BatchExecute{x}).Call(ctx, json.RawMessage(batchCall(t, "", "a", "cancel", "b", "out b")))
	if !errors.Is(err, context.Canceled) || len(m.began()) != 1 {
		t.Errorf("%v, ran %q", err, m.began())
	}
}

// TestCtxBatchUnindexed: output that cannot be indexed is in the reply, up to a limit.
func TestCtxBatchUnindexed(t *testing.T) {
	x, _ := (&scriptRunner{}).ctx(t)
	x.Knowledge = &cannedIndex{err: errors.New("no space left on device")}
	v, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &BatchExecute{x}, batchCall(t, `,"queries":["x"]`, "a", "out hello", "b", "lines 20000"))
	for _, want := range []string{"- a: exit code 0, 1 line, 0.0KB, not indexed: stdout: no space left on device", "## a\nhello\n", "bytes left out", "_(not all of the output is indexed: the queries are answered from the rest)_"} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("no %q in %.500s", want, r.Text)
		}
	}
	if len(r.Text) > maxUnindexed+4096 || r.IsError || v["message"] == nil {
		t.Errorf("%d bytes, %v", len(r.Text), v["message"])
	}
	x.Knowledge = nil
	if _, r = mcptest.CallTool(t, mcptest.AsUser(t.Context()), &BatchExecute{x}, batchCall(t, `,"queries":["x"]`, "a", "out hello")); !strings.Contains(r.Text, "_(the queries are not answered: indexing is disabled)_") || !strings.Contains(r.Text, "hello") {
		t.Errorf("no index: %s", r.Text)
	}
}

// TestCtxBatchArguments: the messages for invalid arguments.
func TestCtxBatchArguments(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat(`{"label":"l","command":"c"},`, 100+1), ",")
	for arguments, want := range map[string]string{
		`{}`:                           "commands: is required",
		`{"commands":[]}`:              "commands: must have at least one entry",
		`{"commands":{}}`:              "commands: must be an array of objects, got an object",
		`{"commands":["ls"]}`:          "commands[0]: must be an object, got a string",
		`{"commands":[{"label":"l"}]}`: "commands[0].command: is required",
		`{"commands":[{"label":"l","command":"c"},{"command":"c"}]}`:      "commands[1].label: is required",
		`{"commands":[{"label":"l","command":""}]}`:                       "commands[0].command: has 0 bytes, the minimum is 1",
		`{"commands":[{"label":"a\nb","command":"c"}]}`:                   `commands[0].label: "a\nb" does not match ^[^\n]+$`,
		`{"commands":[` + many + `]}`:                                     "commands: must have at most 100 entries",
		`{"commands":[{"label":"l","command":"c"}],"timeout":null}`:       "timeout: null is out of range: 1 to 86400000",
		`{"commands":[{"label":"l","command":"c"}],"repoId":"elsewhere"}`: "Repository elsewhere not found",
	} {
		e := &countingEngine{}
		_, r := mcptest.CallTool(t, mcptest.AsUser(t.Context()), &BatchExecute{New(Settings{Engine: e, Repos: []string{"app"}})}, arguments)
		if r.Text != want || !r.IsError || e.n.Load() > 0 {
			t.Errorf("%.80s: %q, want %q", arguments, r.Text, want)
		}
	}
}

// TestCtxBatchRequest: a command becomes a request for the shell runtime.
func TestCtxBatchRequest(t *testing.T) {
	m := &scriptRunner{}
	x, _ := m.ctx(t)
	mcptest.CallTool(t, mcptest.AsUser(t.Context()), &BatchExecute{x}, batchCall(t, `,"cwd":"sub","timeout":"1500","repoId":"other"`, "l", "out x"))
	r := m.requests[0]
	if r.Tool != "ctx_batch_execute" || r.Runtime != "shell" || *r.Code != "out x" || r.Dir != "sub" || r.Repo != "other" ||
		r.Usual.Wall != 1500*time.Millisecond || r.Principal != "user:ada" || r.Session != "s1" {
		t.Errorf("%+v", r)
	}
}

// countingEngine is an engine without a supervisor that counts requests.
type countingEngine struct{ n atomic.Int64 }

// Run implements Engine.
func (e *countingEngine) Run(context.Context, *job.Request, job.Output, job.Hooks) (*job.Record, error) {
	e.n.Add(1)
	return nil, job.ErrUnavailable
}
