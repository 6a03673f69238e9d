package mcp

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

	"corral/job"
)

// batchCall is a call of ctx_batch_execute: commands are labels and codes in turn.
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

// TestCtxBatch: every command runs as it is written, all output is found, and a failure stops nobody.
func TestCtxBatch(t *testing.T) {
	m := &machine{}
	x, _ := m.ctx(t)
	v, r := callTool(t, asUser(t.Context()), &CtxBatchExecute{x}, batchCall(t, `,"queries":["zebra","quagga"],"more":1`,
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
	_, r = callTool(t, asUser(t.Context()), &CtxSearch{x}, `{"query":"zebra","source":"first"}`)
	if !strings.Contains(r.Text, "the zebra is loose") {
		t.Errorf("later: %s", r.Text)
	}
}

// TestCtxBatchScope: queries are about this batch, unless they are to be about everything.
func TestCtxBatchScope(t *testing.T) {
	x, _ := (&machine{}).ctx(t)
	tool := &CtxBatchExecute{x}
	callTool(t, asUser(t.Context()), tool, batchCall(t, "", "old", "out an old zebra"))
	_, r := callTool(t, asUser(t.Context()), tool, batchCall(t, `,"queries":"zebra"`, "new", "out a new zebra", "newer", "out another zebra"))
	if strings.Contains(r.Text, "old zebra") || !strings.Contains(r.Text, "new zebra") || !strings.Contains(r.Text, "another zebra") {
		t.Errorf("batch: %s", r.Text)
	}
	_, r = callTool(t, asUser(t.Context()), tool, batchCall(t, `,"queries":["zebra"],"query_scope":"global"`, "none", "exit 0"))
	if !strings.Contains(r.Text, "old zebra") || !strings.Contains(r.Text, "new zebra") {
		t.Errorf("global: %s", r.Text)
	}
	_, r = callTool(t, asUser(t.Context()), tool, batchCall(t, `,"queries":["zebra"]`, "silent", "exit 0"))
	if !strings.HasSuffix(r.Text, "Searched 1 query.\n\n## Commands\n\n- silent: exit code 0, 0 lines, 0.0KB\n\n---\n\n## zebra\nNo results found.") {
		t.Errorf("no output: %s", r.Text)
	}
}

// TestCtxBatchAtOnce: as many run at once as are asked for, and replies keep the order of the call.
func TestCtxBatchAtOnce(t *testing.T) {
	m := &machine{meet: &sync.WaitGroup{}}
	m.meet.Add(4)
	x, _ := m.ctx(t)
	var commands []string
	for n := range 4 {
		commands = append(commands, fmt.Sprintf("l%d", n), "meet\nout x")
	}
	for n := range 4 {
		commands = append(commands, fmt.Sprintf("m%d", n), "out y")
	}
	v, _ := callTool(t, asUser(t.Context()), &CtxBatchExecute{x}, batchCall(t, `,"concurrency":"4"`, commands...))
	if m.peak != 4 {
		t.Errorf("%d at once", m.peak)
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
	m = &machine{}
	x, _ = m.ctx(t)
	callTool(t, asUser(t.Context()), &CtxBatchExecute{x}, batchCall(t, "", commands[8:]...))
	if m.peak != 1 || !slices.Equal(m.began(), []string{"out y", "out y", "out y", "out y"}) {
		t.Errorf("one after the other: %d at once", m.peak)
	}
}

// TestCtxBatchFewPlaces: where fewer jobs may run at once than are asked for, all of them run still.
func TestCtxBatchFewPlaces(t *testing.T) {
	m := &machine{places: 2}
	x, _ := m.ctx(t)
	var commands []string
	for n := range 30 {
		commands = append(commands, fmt.Sprintf("l%d", n), fmt.Sprintf("out %d", n))
	}
	v, r := callTool(t, asUser(t.Context()), &CtxBatchExecute{x}, batchCall(t, `,"concurrency":8`, commands...))
	if strings.Contains(r.Text, "denied") || len(m.began()) != 30 {
		t.Errorf("%d ran: %s", len(m.began()), r.Text)
	}
	if list, _ := v["commands"].([]any); len(list) != 30 {
		t.Errorf("%d told of", len(list))
	}
}

// TestCtxBatchEndings: what becomes of commands that do not end well, in words.
func TestCtxBatchEndings(t *testing.T) {
	x, _ := (&machine{}).ctx(t)
	v, r := callTool(t, asUser(t.Context()), &CtxBatchExecute{x}, batchCall(t, `,"timeout":400`, "late", "out partial\nlate", "denied", "deny"))
	if want := "- late: timed out after 400ms, 1 line, 0.0KB\n- denied: denied: no such thing here"; !strings.Contains(r.Text, want) || r.IsError {
		t.Errorf("no %q in %v", want, v)
	}
	_, r = callTool(t, asUser(t.Context()), &CtxBatchExecute{x}, batchCall(t, "", "a", "deny", "b", "deny"))
	if !r.IsError || !strings.Contains(r.Text, "- a: denied: no such thing here\n- b: denied") {
		t.Errorf("all denied: %t %s", r.IsError, r.Text)
	}
}

// TestCtxBatchCancelled: a call that is cancelled starts nothing more.
func TestCtxBatchCancelled(t *testing.T) {
	m := &machine{}
	x, _ := m.ctx(t)
	ctx, cancel := context.WithCancel(asUser(t.Context()))
	defer cancel()
	m.cancel = cancel
	_, err := (&CtxBatchExecute{x}).Call(ctx, json.RawMessage(batchCall(t, "", "a", "cancel", "b", "out b")))
	if !errors.Is(err, context.Canceled) || len(m.began()) != 1 {
		t.Errorf("%v, ran %q", err, m.began())
	}
}

// TestCtxBatchUnindexed: output that cannot be indexed is in the reply, as far as there is room.
func TestCtxBatchUnindexed(t *testing.T) {
	x, _ := (&machine{}).ctx(t)
	x.Knowledge = &canned{err: errors.New("no space left on device")}
	v, r := callTool(t, asUser(t.Context()), &CtxBatchExecute{x}, batchCall(t, `,"queries":["x"]`, "a", "out hello", "b", "lines 20000"))
	for _, want := range []string{"- a: exit code 0, 1 line, 0.0KB, not indexed: stdout: no space left on device", "## a\nhello\n", "bytes left out", "_(not all of the output is indexed: the queries are answered from the rest)_"} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("no %q in %.500s", want, r.Text)
		}
	}
	if len(r.Text) > maxUnindexed+4096 || r.IsError || v["message"] == nil {
		t.Errorf("%d bytes, %v", len(r.Text), v["message"])
	}
	x.Knowledge = nil
	if _, r = callTool(t, asUser(t.Context()), &CtxBatchExecute{x}, batchCall(t, `,"queries":["x"]`, "a", "out hello")); !strings.Contains(r.Text, "_(the queries are not answered: there is no index here)_") || !strings.Contains(r.Text, "hello") {
		t.Errorf("no index: %s", r.Text)
	}
}

// TestCtxBatchArguments: what is refused, in words.
func TestCtxBatchArguments(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat(`{"label":"l","command":"c"},`, maxCommands+1), ",")
	for arguments, want := range map[string]string{
		`{}`:                           "commands: it is required",
		`{"commands":[]}`:              "commands: at least one is wanted",
		`{"commands":{}}`:              "commands: an array of objects is wanted, not an object",
		`{"commands":["ls"]}`:          "commands[0]: an object is wanted, not a string",
		`{"commands":[{"label":"l"}]}`: "commands[0].command: it is required",
		`{"commands":[{"label":"l","command":"c"},{"command":"c"}]}`:      "commands[1].label: it is required",
		`{"commands":[{"label":"l","command":""}]}`:                       "commands[0].command: 0 bytes, at least 1 are wanted",
		`{"commands":[{"label":"a\nb","command":"c"}]}`:                   `commands[0].label: "a\nb" does not match ^[^\n]+$`,
		`{"commands":[` + many + `]}`:                                     "commands: more than 100 entries",
		`{"commands":[{"label":"l","command":"c"}],"concurrency":9}`:      "concurrency: 9 is out of range: 1 to 8",
		`{"commands":[{"label":"l","command":"c"}],"concurrency":0}`:      "concurrency: 0 is out of range: 1 to 8",
		`{"commands":[{"label":"l","command":"c"}],"timeout":0}`:          "timeout: 0 is out of range: 1 to 86400000",
		`{"commands":[{"label":"l","command":"c"}],"timeout":null}`:       "timeout: null is out of range: 1 to 86400000",
		`{"commands":[{"label":"l","command":"c"}],"query_scope":"all"}`:  `query_scope: "all" is none of: batch, global`,
		`{"commands":[{"label":"l","command":"c"}],"repoId":"elsewhere"}`: "Repository elsewhere not found",
	} {
		e := &jobless{}
		_, r := callTool(t, asUser(t.Context()), &CtxBatchExecute{&Ctx{Engine: e, Repos: []string{"app"}}}, arguments)
		if r.Text != want || !r.IsError || e.n.Load() > 0 {
			t.Errorf("%.80s: %q, want %q", arguments, r.Text, want)
		}
	}
}

// TestCtxBatchRequest: a command is the engine's request of a shell.
func TestCtxBatchRequest(t *testing.T) {
	m := &machine{}
	x, _ := m.ctx(t)
	callTool(t, asUser(t.Context()), &CtxBatchExecute{x}, batchCall(t, `,"cwd":"sub","timeout":"1500","repoId":"other"`, "l", "out x"))
	r := m.requests[0]
	if r.Tool != "ctx_batch_execute" || r.Runtime != "shell" || *r.Code != "out x" || r.Dir != "sub" || r.Repo != "other" ||
		r.Limits.Wall != 1500*time.Millisecond || r.Principal != "user:ada" || r.Session != "s1" {
		t.Errorf("%+v", r)
	}
}

// FuzzCtxBatch: whatever is sent, there is an answer as the schema says.
func FuzzCtxBatch(f *testing.F) {
	for _, s := range []string{
		`{"commands":[{"label":"l","command":"c","x":1}],"queries":["q"]}`, `{"commands":[{"label":"\u0000","command":"\ud800"}]}`, `{"commands":"ls"}`, `[]`,
	} {
		f.Add(s)
	}
	x := &Ctx{Knowledge: &canned{}, Repos: []string{"app"}}
	f.Fuzz(func(t *testing.T, arguments string) {
		e := &jobless{}
		x.Engine = e
		_, r := callTool(t, asUser(t.Context()), &CtxBatchExecute{x}, arguments)
		if r.Text == "" || e.n.Load() > maxCommands {
			t.Errorf("%q, %d commands", r.Text, e.n.Load())
		}
	})
}

// jobless is an engine without a supervisor, which counts what it is asked for.
type jobless struct{ n atomic.Int64 }

// Run implements Engine.
func (e *jobless) Run(context.Context, *job.Request, job.Output, job.Watch) (*job.Record, error) {
	e.n.Add(1)
	return nil, job.ErrUnavailable
}
