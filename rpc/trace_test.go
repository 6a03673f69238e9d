package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"corral/internal/calls"
	"corral/internal/test/mcptest"
	"corral/job"
)

// watchedServer returns a server whose Tracer is w.
func watchedServer(w *mcptest.Watcher) (*Server, *world) {
	locate := &world{run: func(ctx context.Context, stdio job.Stdio, argv []string) (job.Result, error) {
		r, err := shell(ctx, stdio, argv)
		if err == nil {
			r.ID = "job-7"
		}
		return r, err
	}}
	s := locate.server()
	s.Log, s.Tracer = slog.New(slog.NewJSONHandler(w, nil)), w
	return s, locate
}

// TestCallLines checks that each request to start a process yields one log line with all keys, and one span.
func TestCallLines(t *testing.T) {
	w := &mcptest.Watcher{}
	s, locate := watchedServer(w)
	locate.deny = func(r *job.Request) (string, string) {
		if r.Command[0] == "denied" {
			return "rule", "no"
		}
		return "", ""
	}
	p := initialized(t, s)
	const exec, spawn = "command/exec", "process/spawn"
	jobs := 0
	for n, row := range []struct {
		method, params  string
		repo, job, code string
		bytes           float64
		records         int
	}{
		{exec, `{"command":["echo","hello"]}`, "app", "job-7", "", 6, 1},
		{exec, `{"command":["both"],"cwd":"inner"}`, "inner", "job-7", "", 6, 1},
		{exec, `{"command":["write","5000"],"outputBytesCap":1000}`, "app", "job-7", "", 1000, 1},
		{exec, `{"command":["echo","hello"],"processId":"a","streamStdoutStderr":true}`, "app", "job-7", "", 6, 1},
		{exec, `{"command":["exit","3"]}`, "app", "job-7", "", 0, 1},
		{exec, `{"command":["denied"]}`, "app", "", "-32600", 0, 1},
		{exec, `{"command":["true"],"cwd":"/etc"}`, "", "", "-32600", 0, 1},
		{exec, `{"command":["down"]}`, "app", "", "-32603", 0, 0},
		{exec, `{"command":["missing"]}`, "app", "", "-32603", 0, 1},
		{exec, `{"command":[]}`, "", "", "-32600", 0, 0},
		{exec, `{"command":["true"],"timeoutMs":-1}`, "", "", "-32602", 0, 0},
		{spawn, `{"command":["echo","hello"],"processHandle":"h","cwd":"/srv/app"}`, "app", "job-7", "", 6, 1},
		{spawn, `{"command":["echo"],"processHandle":"","cwd":"/srv/app"}`, "", "", "-32600", 0, 0},
	} {
		p.answer(p.ask(row.method, row.params))
		line, span, jobsSeen := w.Last(t, n+1)
		for _, key := range mcptest.CallKeys {
			if _, ok := line[key]; !ok {
				t.Errorf("%s: the log line lacks %s: %v", row.params, key, line)
			}
		}
		jobs += row.records
		want := map[string]any{"repo": row.repo, "job": row.job, "error": row.code, "bytes_out": row.bytes, "tool": row.method, "principal": "user:ada", "trace_id": span.At.ID}
		for key, value := range want {
			if line[key] != value {
				t.Errorf("%s: %s is %v, want %v", row.params, key, line[key], value)
			}
		}
		if name := map[string]string{exec: "command.exec", spawn: "process.spawn"}[row.method]; span.Name != name || jobsSeen != jobs || len(line) != len(mcptest.CallKeys) {
			t.Errorf("%s: span %s, %d jobs, want %d; %v", row.params, span.Name, jobsSeen, jobs, line)
		}
	}
}

// TestCallLineGone checks that a process that ended with its connection is logged.
func TestCallLineGone(t *testing.T) {
	w := &mcptest.Watcher{}
	s, _ := watchedServer(w)
	p := initialized(t, s)
	p.ask("command/exec", `{"command":["sleep"],"disableTimeout":true}`)
	p.must("process/spawn", `{"command":["sleep"],"processHandle":"h","cwd":"/srv/app"}`)
	p.conn.Close()
	if line, _, _ := w.Last(t, 2); line["error"] != "CANCELLED" {
		t.Errorf("%v", line)
	}
}

// TestTrace checks that the trace context of a request reaches the job, the diagnostic log and the span.
func TestTrace(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	w := &mcptest.Watcher{}
	s, locate := watchedServer(w)
	p := initialized(t, s)
	for n, row := range []struct {
		trace string
		want  calls.Trace
	}{
		{`{"traceparent":"` + parent + `","tracestate":"a=1"}`, calls.TraceOf(parent, "a=1")},
		{`{"traceparent":"` + parent + `","tracestate":null}`, calls.TraceOf(parent, "")},
		{`{"traceparent":"x"}`, calls.Trace{Sampled: true}},
		{`null`, calls.Trace{Sampled: true}},
		{`"` + parent + `"`, calls.Trace{Sampled: true}},
	} {
		p.send(fmt.Sprintf(`{"id":%d,"method":"command/exec","params":{"command":["true"]},"trace":%s}`, 100+n, row.trace))
		p.result(fmt.Sprint(100 + n))
		line, span, _ := w.Last(t, n+1)
		locate.mu.Lock()
		id := locate.reqs[n].ID
		locate.mu.Unlock()
		if row.want.ID == "" {
			row.want.ID = id
		}
		if span.At != row.want || line["trace_id"] != row.want.ID || id != row.want.ID {
			t.Errorf("%s: %+v, log %v, job %s; want %+v", row.trace, span.At, line["trace_id"], id, row.want)
		}
	}
}
