package telemetry

import (
	"slices"
	"strconv"
	"time"

	"corral/internal/calls"
	"corral/job"
	"corral/mcp/tool"
)

// A countedSpan counts one call.
type countedSpan struct {
	m    *Metrics
	next calls.Span // nil without a next Tracer
}

// Begin implements calls.Tracer.
func (m *Metrics) Begin(name string, at calls.Trace, start time.Time) calls.Span {
	s := &countedSpan{m: m}
	if m.next != nil {
		s.next = m.next.Begin(name, at, start)
	}
	return s
}

// Values of labels for what is in no fixed set.
const (
	unknown = "unknown" // a tool that is not served
	other   = "other"
)

// Values of labels that are not those of another package.
const (
	bySupervisor = "supervisor" // a denial
	byTime       = "time"       // a limit
	applied      = "applied"    // a reading of the configuration
	failed       = "failed"
)

// outcomes are the codes of tool.Error, and that of a call that was cancelled.
var outcomes = []string{
	tool.CodeInvalid, tool.CodeNotFound, tool.CodeExpired, tool.CodeCorrupt, tool.CodeUnsupported, tool.CodeDenied, tool.CodeUnavailable,
	tool.CodeInternal, tool.CodeTimeout, tool.CodeOutputLimit, tool.CodeEval, tool.CodeMemoryLimit, "CANCELLED",
}

// outcome returns the label for an error code of a call.
func outcome(code string) string {
	if code == "" {
		return "ok"
	}
	if _, err := strconv.Atoi(code); err == nil {
		return "protocol_error" // the number of a JSON-RPC error
	}
	return among(outcomes, code)
}

// among returns word if list has it, else other.
func among(list []string, word string) string {
	if slices.Contains(list, word) {
		return word
	}
	return other
}

// End implements calls.Span.
func (s *countedSpan) End(sum calls.Summary) {
	name, ok := s.m.tools[sum.Tool]
	if !ok {
		name = unknown
	}
	s.m.calls.WithLabelValues(name, outcome(sum.Error)).Inc()
	s.m.callTime.WithLabelValues(name).Observe(sum.Wall.Seconds())
	if s.next != nil {
		s.next.End(sum)
	}
}

var (
	statuses = []string{
		string(job.Success), string(job.Failure), string(job.Timeout), string(job.Cancelled), string(job.Lost), string(job.Denied),
	}
	// rules are the steps of the policy, and those that refuse a request after it: see docs/reference/policy.md.
	rules = []string{
		"runtime.enabled", "repo", "runtime.allowed", "executable.compatible", "executable.allowed", "arguments", "environment", "cwd",
		"workspace", "network", "timeout", "limits", "rules", "concurrency", "output",
	}
	// steps are those of job.Refusal that the supervisor and sessions name. A step of the confinement counts as other.
	steps = []string{
		"audit", "changes", "cwd", "exec", "files", "internal", "jail", "limits", "network", "payload", "profile", "protect", "repo",
		"request", "session", "workspace",
	}
	limits = []string{
		job.LimitMemory, job.LimitUserMemory, job.LimitPIDs, job.LimitDisk, job.LimitFiles, job.LimitLocks, job.LimitTmp, job.LimitOutput,
	}
)

// Job implements calls.Span.
func (s *countedSpan) Job(r *job.Record) {
	s.m.jobs.WithLabelValues(among(statuses, string(r.Status))).Inc()
	if r.Refusal != nil {
		s.Refused(r.Refusal)
	}
	switch {
	case r.Refusal != nil:
		s.m.denials.WithLabelValues(bySupervisor).Inc()
	case r.Status == job.Denied:
		s.m.denials.WithLabelValues(among(rules, r.Decision.Rule)).Inc()
	}
	switch {
	case r.Result.Limit != "":
		s.m.limits.WithLabelValues(among(limits, r.Result.Limit)).Inc()
	case r.Status == job.Timeout:
		s.m.limits.WithLabelValues(byTime).Inc()
	}
	if r.SessionReplaced != "" {
		s.m.replaced.WithLabelValues(string(r.SessionReplaced)).Inc()
	}
	if r.Queued > 0 { // it came to the queue
		s.m.queueTime.Observe(r.Queued.Seconds())
	}
	for _, part := range r.Parts() { // of a fixed set of names
		s.m.stageTime.WithLabelValues(part.Name).Observe(max(part.To.Sub(part.From), 0).Seconds())
	}
	if s.next != nil {
		s.next.Job(r)
	}
}

// Refused implements calls.Refuser.
func (s *countedSpan) Refused(r *job.Refusal) {
	s.m.refusals.WithLabelValues(among(steps, r.Step)).Inc()
}
