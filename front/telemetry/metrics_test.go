package telemetry

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"corral/internal/calls"
	"corral/internal/test/sandboxtest"
	"corral/job"
)

var (
	helpLine   = regexp.MustCompile(`^# HELP ([a-z_]+) [^\\\n]+$`)
	typeLine   = regexp.MustCompile(`^# TYPE ([a-z_]+) (counter|gauge|histogram)$`)
	sampleLine = regexp.MustCompile(`^([a-z_]+)(?:\{((?:[a-z_]+="[^"\\\n]*",?)+)\})? (\S+)$`)
)

// parse is a strict parser of the text format 0.0.4: each family has HELP, TYPE and then samples of its own, each once.
func parse(t *testing.T, text string) map[string]float64 {
	t.Helper()
	samples, families := map[string]float64{}, map[string]bool{}
	family, kind, described := "", "", ""
	if !strings.HasSuffix(text, "\n") {
		t.Error("the last line does not end")
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if m := helpLine.FindStringSubmatch(line); m != nil {
			described = m[1]
			continue
		}
		if m := typeLine.FindStringSubmatch(line); m != nil {
			if m[1] != described || families[m[1]] {
				t.Errorf("%q: after the help of %q, or twice", line, described)
			}
			family, kind, families[m[1]] = m[1], m[2], true
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("not a line of the format: %q", line)
		}
		name := m[1]
		if kind == "histogram" {
			name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		}
		value, err := strconv.ParseFloat(m[3], 64)
		key := strings.TrimSuffix(line, " "+m[3])
		if _, twice := samples[key]; err != nil || name != family || twice || kind == "counter" && !strings.HasSuffix(name, "_total") {
			t.Errorf("%q in family %s (%s): %v", line, family, kind, err)
		}
		samples[key] = value
	}
	return samples
}

// textOf returns the samples of m.
func textOf(t *testing.T, m *Metrics) map[string]float64 {
	t.Helper()
	b, err := m.Text(3, 2)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(b))
}

var jobBegun = time.Unix(1e9, 0)

// ran is the record of a job that waited for 2 ms and ran for 3 s.
func ran(status job.Status, limit string) *job.Record {
	r := &job.Record{Request: &job.Request{}, Status: status, Created: jobBegun, Queued: 2 * time.Millisecond}
	r.Result.Limit, r.Result.Usage.Wall = limit, 3*time.Second
	r.Phases.Decided, r.Phases.Launched = jobBegun, jobBegun
	r.Phases.Ended, r.Phases.Stored = jobBegun.Add(4*time.Second), jobBegun.Add(4*time.Second)
	return r
}

// TestValues checks all metrics after known calls, and that the next tracer gets each call.
func TestValues(t *testing.T) {
	var next countingTracer
	m := NewMetrics(MetricsOptions{
		Version: "v1", Tools: map[string]string{"run": "run", "corral.run": "run"}, Next: &next,
		Stored: func() (int64, bool) { return 4096, true }, StoredLimit: 8192,
		Load:  func() job.Load { return job.Load{Running: 1, MaxRunning: 2, Waiting: 3, MaxWaiting: 4} },
		Ready: func() bool { return true },
	})
	call := func(tool, code string, jobs ...*job.Record) {
		c := calls.Begin(m, calls.Start{Tool: tool, At: time.Now()})
		for _, r := range jobs {
			c.Ran(r)
		}
		c.End(t.Context(), nil, 0, code)
	}
	denied := &job.Record{Request: &job.Request{}, Status: job.Denied, Decision: job.Decision{Rule: "rules"}}
	refused := &job.Record{Request: &job.Request{}, Status: job.Denied, Refusal: &job.Refusal{Step: "jail"}}
	call("run", "", ran(job.Success, ""), ran(job.Failure, job.LimitMemory))
	call("corral.run", "TIMEOUT", ran(job.Timeout, ""))
	call("run", "DENIED", denied, refused)
	call("run", "-32602")
	call("nope", "-32602")
	c := calls.Begin(m, calls.Start{Tool: "run", At: time.Now()})
	c.Failed(fmt.Errorf("run: %w", &job.Refusal{Step: "audit"}))
	c.Failed(&job.Refusal{Step: "landlock"})
	c.Failed(&job.Refusal{Step: "internal"})
	c.Failed(job.ErrUnavailable)
	got := textOf(t, m)
	for key, want := range map[string]float64{
		`corral_calls_total{outcome="ok",tool="run"}`:                 1,
		`corral_calls_total{outcome="TIMEOUT",tool="run"}`:            1,
		`corral_calls_total{outcome="DENIED",tool="run"}`:             1,
		`corral_calls_total{outcome="protocol_error",tool="run"}`:     1,
		`corral_calls_total{outcome="protocol_error",tool="unknown"}`: 1,
		`corral_call_seconds_count{tool="run"}`:                       4,
		`corral_jobs_total{status="success"}`:                         1,
		`corral_jobs_total{status="failure"}`:                         1,
		`corral_jobs_total{status="timeout"}`:                         1,
		`corral_jobs_total{status="denied"}`:                          2,
		`corral_denials_total{rule="rules"}`:                          1,
		`corral_denials_total{rule="supervisor"}`:                     1,
		`corral_limits_hit_total{limit="memory"}`:                     1,
		`corral_limits_hit_total{limit="time"}`:                       1,
		`corral_job_queue_seconds_count`:                              3,
		`corral_job_queue_seconds_bucket{le="0.001"}`:                 0,
		`corral_job_queue_seconds_bucket{le="0.004"}`:                 3,
		`corral_job_stage_seconds_sum{stage="run"}`:                   9,
		`corral_job_stage_seconds_bucket{stage="run",le="1.024"}`:     0,
		`corral_job_stage_seconds_bucket{stage="run",le="+Inf"}`:      3,
		`corral_job_stage_seconds_sum{stage="start"}`:                 3,
		`corral_job_stage_seconds_count{stage="decision"}`:            3,
		`corral_job_stage_seconds_count{stage="store"}`:               3,
		`corral_refusals_total{step="jail"}`:                          1,
		`corral_refusals_total{step="audit"}`:                         1,
		`corral_refusals_total{step="other"}`:                         1,
		`corral_refusals_total{step="internal"}`:                      1,
		`corral_artifacts_limit_bytes`:                                8192,
		`corral_jobs_running`:                                         1,
		`corral_jobs_running_limit`:                                   2,
		`corral_jobs_waiting`:                                         3,
		`corral_jobs_waiting_limit`:                                   4,
		`corral_refusals_total{step="session"}`:                       0,
		`corral_supervisor_up`:                                        1,
		`corral_http_connections`:                                     3,
		`corral_http_sessions`:                                        2,
		`corral_artifacts_bytes`:                                      4096,
	} {
		if value, ok := got[key]; !ok || value != want {
			t.Errorf("%s: %v, want %v", key, value, want)
		}
	}
	if !slices.ContainsFunc(slices.Collect(maps.Keys(got)), func(k string) bool {
		return strings.HasPrefix(k, "corral_build_info{") && strings.Contains(k, `version="v1"`)
	}) {
		t.Error("no build information")
	}
	if want := (countingTracer{begun: 6, jobs: 5, ended: 5}); next != want {
		t.Errorf("the next tracer got %+v, want %+v", next, want)
	}
}

// countingTracer is a calls.Tracer, and a span, that counts what it gets.
type countingTracer struct{ begun, jobs, ended int }

func (c *countingTracer) Begin(string, calls.Trace, time.Time) calls.Span {
	c.begun++
	return c
}

func (c *countingTracer) Job(*job.Record) { c.jobs++ }

func (c *countingTracer) End(calls.Summary) { c.ended++ }

// TestBounded: whatever clients, jobs and rules name, the number of series stays the same, and none of the words is shown.
func TestBounded(t *testing.T) {
	m := NewMetrics(MetricsOptions{Tools: map[string]string{"run": "run"}})
	hostile := func(n int) {
		word := fmt.Sprintf("evil-%d\"} 1\n# TYPE x", n)
		c := calls.Begin(m, calls.Start{Tool: word, Principal: word, Session: word, At: time.Now()})
		r := ran(job.Status(word), word)
		r.Decision.Rule, r.Request.Repo = word, word
		c.Ran(r)
		r = ran(job.Denied, "")
		r.Decision.Rule = word
		c.Ran(r)
		c.Failed(&job.Refusal{Step: word})
		c.End(t.Context(), nil, 0, word)
	}
	hostile(0)
	before := len(textOf(t, m))
	for n := range 1000 {
		hostile(n)
	}
	after := textOf(t, m)
	if len(after) != before {
		t.Errorf("%d series, then %d", before, len(after))
	}
	for key := range after {
		if strings.Contains(key, "evil") {
			t.Errorf("a client's word is shown: %s", key)
		}
	}
	if n := after[`corral_calls_total{outcome="other",tool="unknown"}`]; n != 1001 {
		t.Errorf("%v calls", n)
	}
	if _, ok := after["corral_artifacts_bytes"]; ok {
		t.Error("an unknown size is shown")
	}
}

// TestRules: each rule of the reference page is counted by its name.
func TestRules(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(sandboxtest.ModuleRoot(t), "docs/reference/policy.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Steps\n")
	section, _, ok := strings.Cut(section, "\nA command without a runtime")
	var want []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		want = append(want, m[1])
	}
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(rules)); !ok || !slices.Equal(got, slices.Compact(want)) {
		t.Errorf("the page has %q, the code %q", want, got)
	}
}
