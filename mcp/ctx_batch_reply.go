package mcp

import (
	"fmt"
	"slices"
	"strings"

	"corral/job"
)

// A batchReply is structuredContent of ctx_batch_execute.
type batchReply struct {
	Text     string          `json:"text"`
	Commands []*commandReply `json:"commands"`
	Results  []*queryAnswer  `json:"results,omitempty"`
	Reason   string          `json:"message,omitempty"`
}

// A commandReply is what became of one command.
type commandReply struct {
	Label    string        `json:"label"`
	Status   job.Status    `json:"status"`
	ExitCode *int          `json:"exitCode"`
	Signal   string        `json:"signal,omitempty"`
	Duration int64         `json:"durationMs"`
	Message  string        `json:"message,omitempty"`
	Lines    int64         `json:"lines"`
	Bytes    int64         `json:"bytes"`
	Indexed  []*ctxIndexed `json:"indexed,omitempty"`
	Reason   string        `json:"indexReason,omitempty"`
	Output   string        `json:"output,omitempty"`
	Artifact string        `json:"artifactHandle,omitempty"`

	executed bool
	crowded  bool // there was no place for it among the jobs there may be at once
	ended    string
}

// fill notes what became of a run.
func (c *commandReply) fill(ran *ctxRan) {
	record := ran.record
	o := outcome(record)
	c.Status, c.ExitCode, c.Duration, c.Message = o.Status, o.ExitCode, o.DurationMs, o.Message
	if o.Signal != nil {
		c.Signal = *o.Signal
	}
	c.Artifact = ran.out.Handle
	c.Lines = ran.out.Stdout.Lines + ran.out.Stderr.Lines
	c.Bytes = ran.out.Stdout.Bytes + ran.out.Stderr.Bytes
	switch {
	case record.Status == job.Denied:
		c.Message = clean(strings.Join(record.Decision.Reasons, "; "))
		c.crowded = record.Decision.Rule == "concurrency"
	case record.Decision.Missing != "":
		c.Status, c.Message = job.Failure, fail(unavailable(ran.runtime, record.Decision.Missing)).Message
	case notRun(record):
	default:
		c.executed, c.ended = true, ending(record)
	}
}

// ending says how a command ended.
func ending(r *job.Record) string {
	switch {
	case r.Status == job.Timeout:
		return "timed out after " + limitMs(r)
	case killed(r) != "":
		return "k" + killed(r)[1:]
	}
	return fmt.Sprintf("exit code %d", r.Result.ExitCode)
}

// ran says whether any of the commands was executed.
func (r *batchReply) ran() bool {
	return slices.ContainsFunc(r.Commands, func(c *commandReply) bool { return c.executed })
}

// artifacts are those of what was indexed.
func (r *batchReply) artifacts() []string {
	var handles []string
	for _, c := range r.Commands {
		if len(c.Indexed) > 0 {
			handles = append(handles, c.Artifact)
		}
	}
	return handles
}

// unindexed says whether there is output that cannot be found.
func (r *batchReply) unindexed() bool {
	return slices.ContainsFunc(r.Commands, func(c *commandReply) bool { return c.Reason != "" })
}

// words are the text of the reply: a line for each command, then the answers.
func (r *batchReply) words() string {
	var b strings.Builder
	var lines, bytes int64
	sections := 0
	for _, c := range r.Commands {
		lines, bytes = lines+c.Lines, bytes+c.Bytes
		for _, in := range c.Indexed {
			sections += in.Sections
		}
	}
	fmt.Fprintf(&b, "Executed %s (%s, %s). Indexed %s. Searched %s.\n\n## Commands\n", counted(len(r.Commands), "command"),
		counted(int(lines), "line"), kilobytes(bytes), counted(sections, "section"), searched(len(r.Results)))
	for _, c := range r.Commands {
		b.WriteString("\n- " + c.line())
	}
	for _, c := range r.Commands {
		if c.Output != "" {
			fmt.Fprintf(&b, "\n\n## %s\n%s", inLine(c.Label), c.Output)
		}
	}
	if len(r.Results) > 0 {
		b.WriteString("\n\n---\n\n" + answersText(r.Results))
	}
	if r.Reason != "" {
		b.WriteString("\n\n_(" + r.Reason + ")_")
	}
	if sections > 0 {
		b.WriteString("\n\n" + ctxLast)
	}
	return b.String()
}

func searched(n int) string {
	if n == 1 {
		return "1 query"
	}
	return fmt.Sprintf("%d queries", n)
}

// line says what became of a command.
func (c *commandReply) line() string {
	label := inLine(c.Label)
	switch {
	case c.Status == job.Denied:
		return label + ": denied: " + inLine(c.Message)
	case !c.executed:
		return label + ": not run: " + inLine(c.Message)
	}
	line := fmt.Sprintf("%s: %s, %s, %s", label, c.ended, counted(int(c.Lines), "line"), kilobytes(c.Bytes))
	if c.Reason != "" {
		line += ", not indexed: " + inLine(c.Reason)
	}
	return line
}
