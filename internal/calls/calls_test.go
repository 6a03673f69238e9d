package calls

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"corral/job"
)

// A teller records the calls of a Tracer's methods.
type teller struct {
	mu   sync.Mutex
	name string        // guarded by mu
	at   Trace         // guarded by mu
	jobs []*job.Record // guarded by mu
	ends []Summary     // guarded by mu
}

func (t *teller) Begin(name string, at Trace, _ time.Time) Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.name, t.at = name, at
	return t
}

func (t *teller) Job(r *job.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.jobs = append(t.jobs, r)
}

func (t *teller) End(s Summary) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ends = append(t.ends, s)
}

func ran(repo, id string) *job.Record {
	return &job.Record{Request: &job.Request{Repo: repo}, Result: job.Result{ID: id}}
}

// line ends c and returns its line.
func line(t *testing.T, c *Call, bytesOut int, code string) map[string]any {
	t.Helper()
	var b bytes.Buffer
	c.End(t.Context(), slog.New(slog.NewJSONHandler(&b, nil)), bytesOut, code)
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || bytes.Count(b.Bytes(), []byte("\n")) != 1 {
		t.Fatalf("%v: %q", err, b.String())
	}
	return got
}

func TestCall(t *testing.T) {
	start := Start{
		Tool: "runtime_execute", Span: "tools.runtime.execute", Principal: "user:ada", Session: "s1",
		Trace: Trace{ID: traceID, Parent: parentID, Sampled: true}, At: time.Now().Add(-3 * time.Second),
	}
	many := func(c *Call) {
		for n := range maxNamed + 5 {
			c.Ran(ran("app", fmt.Sprint(n)))
		}
	}
	for _, tt := range []struct {
		name string
		does func(c *Call)
		repo string
		jobs string
		told int
	}{
		{"nothing", func(*Call) {}, "", "", 0},
		{"a repository", func(c *Call) { c.Repo("app"); c.Repo("other") }, "app", "", 0},
		{"a job", func(c *Call) { c.Ran(ran("app", "job-1")) }, "app", "job-1", 1},
		{"a refusal", func(c *Call) { c.Ran(ran("app", "")) }, "app", "", 1},
		{"no record", func(c *Call) { c.Repo("app"); c.Ran(nil) }, "app", "", 0},
		{"two jobs", func(c *Call) { c.Ran(ran("app", "a")); c.Ran(ran("lib", "b")) }, "app", "a,b", 2},
		{"many jobs", many, "app", "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,+5", maxNamed + 5},
		{"a long word", func(c *Call) { c.Repo(strings.Repeat("é", 1000)) }, strings.Repeat("é", maxWord/2) + "…", "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tracer := &teller{}
			c := Begin(tracer, start)
			tt.does(Of(With(t.Context(), c)))
			got := line(t, c, 77, "DENIED")
			wall := got["wall_ms"].(float64)
			for key, want := range map[string]any{
				"msg": "tool call", "trace_id": traceID, "tool": "runtime_execute", "repo": tt.repo, "principal": "user:ada",
				"session": "s1", "job": tt.jobs, "bytes_out": 77.0, "error": "DENIED",
			} {
				if got[key] != want {
					t.Errorf("%s: %v, want %v", key, got[key], want)
				}
			}
			if wall < 3000 || wall > 60_000 {
				t.Errorf("wall_ms: %v", wall)
			}
			if tracer.name != start.Span || tracer.at != start.Trace || len(tracer.jobs) != tt.told || len(tracer.ends) != 1 {
				t.Fatalf("told of %q, %+v, %d jobs, %d ends", tracer.name, tracer.at, len(tracer.jobs), len(tracer.ends))
			}
			if s := tracer.ends[0]; s.Repo != tt.repo || s.Jobs != tt.jobs || s.Bytes != 77 || s.Error != "DENIED" || s.Wall < 3*time.Second {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestLate: a job that ends after its call is passed to the Tracer, but is in no line.
func TestLate(t *testing.T) {
	tracer := &teller{}
	c := Begin(tracer, Start{At: time.Now()})
	if got := line(t, c, 0, ""); got["job"] != "" {
		t.Errorf("job: %v", got["job"])
	}
	c.Ran(ran("app", "late"))
	if len(tracer.jobs) != 1 || len(tracer.ends) != 1 {
		t.Errorf("told of %d jobs, %d ends", len(tracer.jobs), len(tracer.ends))
	}
}

// TestBounds: the memory and the output of a call are bounded.
func TestBounds(t *testing.T) {
	tracer := &teller{}
	c := Begin(tracer, Start{Tool: strings.Repeat("x", 1<<20), At: time.Now()})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				c.Ran(ran("app", strings.Repeat("j", 1000)))
			}
		})
	}
	all.Wait()
	got := line(t, c, 0, strings.Repeat("e", 1<<20))
	if raw, _ := json.Marshal(got); len(raw) > (maxNamed+8)*(maxWord+16) {
		t.Errorf("the line has %d bytes", len(raw))
	}
	if len(tracer.jobs) != maxSpans {
		t.Errorf("told of %d jobs", len(tracer.jobs))
	}
}

// TestNilCall: a context without a call, a nil log and a nil Tracer are accepted.
func TestNilCall(t *testing.T) {
	c := Of(context.Background())
	c.Repo("app")
	c.Ran(ran("app", "x"))
	c.End(t.Context(), nil, 0, "")
	if c != nil {
		t.Error("a context without a call has one")
	}
	c = Begin(nil, Start{At: time.Now()})
	c.Ran(ran("app", "x"))
	c.End(t.Context(), nil, 0, "")
	if s := c.summary(0, ""); s.Jobs != "x" {
		t.Errorf("%+v", s)
	}
}

// TestDocumented: the page about a call's line explains each of its keys and each part of a job.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-to/observe-calls.md")
	if err != nil {
		t.Fatal(err)
	}
	words := []string{job.PartDecision, job.PartStart, job.PartRun, job.PartStore}
	for key := range line(t, Begin(nil, Start{At: time.Now()}), 0, "") {
		if key != "time" && key != "level" && key != "msg" {
			words = append(words, key)
		}
	}
	for _, word := range words {
		if !strings.Contains(string(page), "\n| `"+word+"` |") {
			t.Errorf("the page does not explain %s", word)
		}
	}
}
