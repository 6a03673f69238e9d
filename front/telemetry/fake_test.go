package telemetry

import (
	"bytes"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"corral/internal/calls"
	"corral/job"
)

const (
	traceID  = "0af7651916cd43dd8448eb211c80319c"
	parentID = "b7ad6b7169203331"
)

// begun is the start of the calls in these tests.
var begun = time.Unix(1_700_000_000, 123_456_789)

func at(ms int) time.Time { return begun.Add(time.Duration(ms) * time.Millisecond) }

// record returns the record of a job that took 2 ms to decide, 8 to start, 90 to run and 5 to store.
func record(id string) *job.Record {
	code := "print('secret-code')"
	return &job.Record{
		Request: &job.Request{Repo: "app", Code: &code, Stdin: "secret-input", Args: []string{"secret-argument"}},
		Status:  job.Failure, Created: begun, Queued: 3 * time.Millisecond,
		Phases: job.Phases{Decided: at(2), Launched: at(6), Ended: at(100), Stored: at(105)},
		Result: job.Result{ID: id, ExitCode: 3, Limit: job.LimitMemory, Usage: job.Usage{Wall: 90 * time.Millisecond}},
	}
}

// call makes one call of a tool with a job.
func call(t *Tracer, trace calls.Trace, code string) {
	c := t.Begin("tools.runtime.execute", trace, begun)
	c.Job(record("job-1"))
	c.End(calls.Summary{
		Start: calls.Start{Tool: "runtime_execute", Principal: "user:ada", Session: "secret-session", Trace: trace, At: begun},
		Repo:  "app", Jobs: "job-1", Wall: 107 * time.Millisecond, Bytes: 55, Error: code,
	})
}

// A site is a fake collector.
type site struct {
	url string

	mu    sync.Mutex
	spans []*tracepb.ResourceSpans // guarded by mu
	heads []http.Header            // guarded by mu
	paths []string                 // guarded by mu
	raw   []byte                   // guarded by mu: all bodies
}

// newSite starts a collector that replies with answer; nil replies 200.
func newSite(t *testing.T, answer func(n int, w http.ResponseWriter)) *site {
	t.Helper()
	s := &site{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var data tracepb.TracesData
		if err != nil || r.Method != http.MethodPost || proto.Unmarshal(body, &data) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		s.spans = append(s.spans, data.ResourceSpans...)
		s.heads, s.paths, s.raw = append(s.heads, r.Header), append(s.paths, r.URL.Path), append(s.raw, body...)
		n := len(s.paths)
		s.mu.Unlock()
		if answer != nil {
			answer(n, w)
		}
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// all returns the received spans by name.
func (s *site) all(t *testing.T) map[string]*tracepb.Span {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]*tracepb.Span{}
	for _, r := range s.spans {
		for _, scope := range r.ScopeSpans {
			for _, span := range scope.Spans {
				if found[span.Name] != nil {
					t.Errorf("span %s was received twice", span.Name)
				}
				found[span.Name] = span
			}
		}
	}
	return found
}

func (s *site) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.paths)
}

// attributes returns the attributes of a span as text.
func attributes(s *tracepb.Span) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[a.Key] = strings.Trim(strings.TrimPrefix(strings.TrimPrefix(a.Value.String(), "string_value:"), "int_value:"), `"`)
	}
	return all
}

func idOf(b []byte) string { return hex.EncodeToString(b) }

// A journal is the diagnostic log of a test.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

func (j *journal) log() *slog.Logger { return slog.New(slog.NewJSONHandler(j, nil)) }

// open opens a Tracer. The test must close it.
func open(t *testing.T, o Options) *Tracer {
	t.Helper()
	o.Service, o.Version = "corral", "1.2.3"
	tracer, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}
