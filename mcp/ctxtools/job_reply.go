package ctxtools

import (
	"context"
	"fmt"
	"strings"
	"time"

	"corral/job"
	"corral/mcp/run"
	"corral/mcp/tool"
)

// A jobReply is the structuredContent of the tools about background jobs.
type jobReply struct {
	JobID          string     `json:"jobId"`
	Status         job.Status `json:"status" enum:"running,success,failure,timeout,cancelled,denied"`
	Runtime        string     `json:"runtime"`
	Source         string     `json:"source"` // name under which its output is indexed when it has ended
	StartedAt      time.Time  `json:"startedAt"`
	EndedAt        *time.Time `json:"endedAt,omitempty"`
	DurationMs     int64      `json:"durationMs"` // how long it has run
	ExitCode       *int       `json:"exitCode,omitempty"`
	Signal         *string    `json:"signal,omitempty"`  // signal that ended it, such as SIGTERM
	Limit          string     `json:"limit,omitempty"`   // limit that was reached
	Message        string     `json:"message,omitempty"` // why it was not run, or what went wrong
	StdoutBytes    int64      `json:"stdoutBytes"`       // what it has written
	StderrBytes    int64      `json:"stderrBytes"`
	Listening      []string   `json:"listening,omitempty"`      // where jobs of its session listen, while it runs
	ArtifactHandle *string    `json:"artifactHandle,omitempty"` // for runtime_query_output, when it has ended
	IndexReason    string     `json:"indexReason,omitempty"`    // why its output is not indexed
	Stream         string     `json:"stream,omitempty"`         // action output: stream of the text
	From           *int64     `json:"offset,omitempty"`         // action output: offset of the text in bytes
	Next           *int64     `json:"nextOffset,omitempty"`     // action output: offset to continue with
	Total          *int64     `json:"totalBytes,omitempty"`     // action output: size of the stream in bytes
	Text           string     `json:"text,omitempty"`           // the same as the text block
}

func (r *jobReply) say(text string) { r.Text = text }

// status returns the reply without text.
func status(p *run.Process) *jobReply {
	s, err := p.State()
	r := &jobReply{
		JobID: s.ID, Status: statusRunning, Runtime: s.Runtime(), Source: s.Label, StartedAt: s.Begun.UTC(),
		DurationMs: s.Elapsed().Milliseconds(), StdoutBytes: s.Output.Stdout.Bytes, StderrBytes: s.Output.Stderr.Bytes,
	}
	if s.Running {
		return r
	}
	at := s.Ended.UTC()
	r.EndedAt = &at
	if err != nil {
		r.Status, r.Message = job.Failure, tool.Clean(err.Error())
		return r
	}
	status, end := run.ExitOf(s.Record)
	r.Status, r.ExitCode, r.Signal, r.Limit, r.Message = status, end.ExitCode, end.Signal, s.Record.Result.Limit, end.Message
	if r.Status == job.Denied {
		r.Message = tool.Clean(strings.Join(s.Record.Decision.Reasons, "; "))
	}
	r.IndexReason = s.Skipped
	if s.Output.Handle != "" {
		r.ArtifactHandle = &s.Output.Handle
	}
	return r
}

// statusOf returns the reply without text, with the ports at which jobs of the session listen.
func (x *Suite) statusOf(ctx context.Context, p *run.Process) *jobReply {
	r := status(p)
	if r.Status == statusRunning {
		s, _ := p.State()
		r.Listening = x.Ports.Addresses(ctx, s.Caller, s.Request.Repo)
	}
	return r
}

// words returns one line about the job.
func (r *jobReply) words() string {
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
	fmt.Fprintf(&b, "%s %s; %s; stdout %d bytes, stderr %d bytes", ran, time.Duration(r.DurationMs)*time.Millisecond, r.Source,
		r.StdoutBytes, r.StderrBytes)
	if len(r.Listening) > 0 {
		b.WriteString("; jobs of the session listen at " + strings.Join(r.Listening, " "))
	}
	if r.Message != "" {
		b.WriteString("; " + r.Message)
	}
	if r.IndexReason != "" {
		b.WriteString("; its output is not indexed: " + r.IndexReason)
	}
	return b.String()
}
