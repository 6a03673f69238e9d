package mcp

import (
	"fmt"
	"strings"
	"time"

	"corral/job"
	"corral/store/artifact"
)

// A ctxJobReply is the structuredContent of the tools about background jobs.
type ctxJobReply struct {
	JobID          string     `json:"jobId"`
	Status         job.Status `json:"status"`
	Runtime        string     `json:"runtime"`
	Source         string     `json:"source"`
	StartedAt      time.Time  `json:"startedAt"`
	EndedAt        *time.Time `json:"endedAt,omitempty"`
	DurationMs     int64      `json:"durationMs"`
	ExitCode       *int       `json:"exitCode,omitempty"`
	Signal         *string    `json:"signal,omitempty"`
	Limit          string     `json:"limit,omitempty"`
	Message        string     `json:"message,omitempty"`
	StdoutBytes    int64      `json:"stdoutBytes"`
	StderrBytes    int64      `json:"stderrBytes"`
	ArtifactHandle *string    `json:"artifactHandle,omitempty"`
	IndexReason    string     `json:"indexReason,omitempty"`
	Stream         string     `json:"stream,omitempty"`
	From           *int64     `json:"offset,omitempty"`
	Next           *int64     `json:"nextOffset,omitempty"`
	Total          *int64     `json:"totalBytes,omitempty"`
	Text           string     `json:"text,omitempty"`
}

func jobReplySchema() properties {
	return properties{
		{"text", text("the same as the text block")},
		{"jobId", text("")},
		{"status", &schema{Type: "string", Enum: []string{"running", "success", "failure", "timeout", "cancelled", "denied"}}},
		{"runtime", text("")},
		{"source", text("what its output is indexed as when it has ended")},
		{"startedAt", text("")},
		{"endedAt", text("")},
		{"durationMs", integer("how long it has run")},
		{"exitCode", integer("")},
		{"signal", text("that ended it: SIGTERM")},
		{"limit", text("that was met")},
		{"message", text("why it was not run, or what went wrong")},
		{"stdoutBytes", integer("what it has written")},
		{"stderrBytes", integer("")},
		{"artifactHandle", text("for runtime_query_output, when it has ended")},
		{"indexReason", text("why its output is not indexed")},
		{"stream", text("action output: whose text it is")},
		{"offset", integer("action output: the byte that the text begins with")},
		{"nextOffset", integer("action output: the byte to go on with")},
		{"totalBytes", integer("action output: bytes that there are")},
	}
}

// status returns the reply without text.
func (b *background) status() *ctxJobReply {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &ctxJobReply{JobID: b.id, Status: statusRunning, Runtime: b.runtime, Source: b.label, StartedAt: b.begun.UTC()}
	if b.out != nil {
		r.DurationMs = time.Since(b.begun).Milliseconds()
		r.StdoutBytes, r.StderrBytes = b.out.Written()
		return r
	}
	at := b.ended.UTC()
	r.EndedAt, r.DurationMs = &at, b.ended.Sub(b.begun).Milliseconds()
	if b.ran == nil {
		r.Status, r.Message = job.Failure, clean(b.err.Error())
		return r
	}
	o := outcome(b.ran.record)
	r.Status, r.ExitCode, r.Signal, r.Limit, r.Message = o.Status, o.ExitCode, o.Signal, o.Limit, o.Message
	if r.Status == job.Denied {
		r.Message = clean(strings.Join(b.ran.record.Decision.Reasons, "; "))
	}
	r.StdoutBytes, r.StderrBytes = b.ran.out.Stdout.Bytes, b.ran.out.Stderr.Bytes
	r.IndexReason = b.skipped
	if b.ran.out.Handle != "" {
		r.ArtifactHandle = &b.ran.out.Handle
	}
	return r
}

// live returns the margins of a stream of a running job; ok is false if the job has ended.
func (b *background) live(stream string) (artifact.StreamCapture, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.out == nil {
		return artifact.StreamCapture{}, false
	}
	return b.out.Margins(stream), true
}

// outcome returns the outcome of a job that has ended.
func (b *background) outcome() (*ctxRan, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ran, b.err
}

// words returns one line about the job.
func (r *ctxJobReply) words() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", r.JobID, r.Status)
	if r.ExitCode != nil {
		fmt.Fprintf(&b, ", exit code %d", *r.ExitCode)
	}
	if r.Signal != nil && r.Status == job.Failure { // timeouts and cancellation also end a job by signal
		fmt.Fprintf(&b, ", %s", *r.Signal)
	}
	if r.Limit != "" {
		fmt.Fprintf(&b, ", %s limit reached", r.Limit)
	}
	ran := ", ran for"
	if r.Status == statusRunning {
		ran = " for"
	}
	fmt.Fprintf(&b, "%s %s; %s; stdout %d bytes, stderr %d bytes", ran, time.Duration(r.DurationMs)*time.Millisecond, r.Source, r.StdoutBytes, r.StderrBytes)
	if r.Message != "" {
		b.WriteString("; " + r.Message)
	}
	if r.IndexReason != "" {
		b.WriteString("; its output is not indexed: " + r.IndexReason)
	}
	return b.String()
}
