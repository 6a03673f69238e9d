package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"corral/internal/calls"
	"corral/internal/sandboxtest"
	"corral/job"
)

// A watcher is a log and a Tracer of a test.
type watcher struct {
	mu    sync.Mutex
	lines []map[string]any // guarded by mu
	spans []string         // guarded by mu: of calls that ended
	at    []calls.Trace    // guarded by mu: the same
	jobs  int              // guarded by mu
}

func (w *watcher) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var m map[string]any
	err := json.Unmarshal(line, &m)
	if m["msg"] == "tool call" {
		w.lines = append(w.lines, m)
	}
	return len(line), err
}

func (w *watcher) Begin(name string, at calls.Trace, _ time.Time) calls.Span {
	return &spanOf{w, name, at}
}

type spanOf struct {
	w    *watcher
	name string
	at   calls.Trace
}

func (s *spanOf) Job(*job.Record) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.jobs++
}

func (s *spanOf) End(calls.Summary) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.spans, s.w.at = append(s.w.spans, s.name), append(s.w.at, s.at)
}

// last waits for n calls and returns the last one.
func (w *watcher) last(t *testing.T, n int) (line map[string]any, span string, at calls.Trace, jobs int) {
	t.Helper()
	sandboxtest.Eventually(t, 10*time.Second, fmt.Sprintf("the line of call %d", n), func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.lines) == n && len(w.spans) == n
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines[n-1], w.spans[n-1], w.at[n-1], w.jobs
}

func (w *watcher) server() (*Server, *world) {
	place := &world{run: func(ctx context.Context, stdio job.Stdio, argv []string) (job.Result, error) {
		r, err := shell(ctx, stdio, argv)
		if err == nil {
			r.ID = "job-7"
		}
		return r, err
	}}
	s := place.server()
	s.Log, s.Tracer = slog.New(slog.NewJSONHandler(w, nil)), w
	return s, place
}

// TestCallLines: each process that a client starts, or wants to, has one line with every key, and one span.
func TestCallLines(t *testing.T) {
	keys := []string{"time", "level", "msg", "trace_id", "tool", "repo", "principal", "session", "job", "wall_ms", "bytes_out", "error"}
	w := &watcher{}
	s, place := w.server()
	place.deny = func(r *job.Request) (string, string) {
		if r.Command[0] == "denied" {
			return "rule", "no"
		}
		return "", ""
	}
	p := greeted(t, s)
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
		line, span, at, told := w.last(t, n+1)
		for _, key := range keys {
			if _, ok := line[key]; !ok {
				t.Errorf("%s: the line has no %s: %v", row.params, key, line)
			}
		}
		jobs += row.records
		want := map[string]any{"repo": row.repo, "job": row.job, "error": row.code, "bytes_out": row.bytes, "tool": row.method, "principal": "user:ada", "trace_id": at.ID}
		for key, value := range want {
			if line[key] != value {
				t.Errorf("%s: %s is %v, want %v", row.params, key, line[key], value)
			}
		}
		if name := map[string]string{exec: "command.exec", spawn: "process.spawn"}[row.method]; span != name || told != jobs || len(line) != len(keys) {
			t.Errorf("%s: span %s, %d jobs, want %d; %v", row.params, span, told, jobs, line)
		}
	}
}

// TestCallLineGone: a process that ended with its connection has its line.
func TestCallLineGone(t *testing.T) {
	w := &watcher{}
	s, _ := w.server()
	p := greeted(t, s)
	p.ask("command/exec", `{"command":["sleep"],"disableTimeout":true}`)
	p.must("process/spawn", `{"command":["sleep"],"processHandle":"h","cwd":"/srv/app"}`)
	p.conn.Close()
	if line, _, _, _ := w.last(t, 2); line["error"] != "CANCELLED" {
		t.Errorf("%v", line)
	}
}

// TestTrace: a request names its trace beside its parameters, and the job and the log have it.
func TestTrace(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	w := &watcher{}
	s, place := w.server()
	p := greeted(t, s)
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
		line, _, at, _ := w.last(t, n+1)
		place.mu.Lock()
		id := place.reqs[n].ID
		place.mu.Unlock()
		if row.want.ID == "" {
			row.want.ID = id
		}
		if at != row.want || line["trace_id"] != row.want.ID || id != row.want.ID {
			t.Errorf("%s: %+v, log %v, job %s; want %+v", row.trace, at, line["trace_id"], id, row.want)
		}
	}
}
