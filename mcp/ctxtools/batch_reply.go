package ctxtools

import (
	"fmt"
	"slices"
	"strings"

	"corral/job"
	"corral/mcp/run"
	"corral/mcp/tool"
)

// A batchReply is the structuredContent of ctx_batch_execute.
type batchReply struct {
	said
	Commands []*commandReply `json:"commands"` // in the order of the call
	Results  []*answer       `json:"results,omitempty"`
	Reason   string          `json:"message,omitempty"` // error message
}

// A commandReply is the outcome of one command.
type commandReply struct {
	Label    string           `json:"label"`
	Status   job.Status       `json:"status" enum:"success,failure,timeout,cancelled,denied"`
	ExitCode *int             `json:"exitCode"`
	Signal   string           `json:"signal,omitempty"` // signal that ended it
	Duration int64            `json:"durationMs"`
	Message  string           `json:"message,omitempty"`        // why it was not run, or what went wrong
	Lines    int64            `json:"lines"`                    // of both streams
	Bytes    int64            `json:"bytes"`                    // of both streams
	Indexed  []*indexedOutput `json:"indexed,omitempty"`        // what was indexed, for ctx_search
	Reason   string           `json:"indexReason,omitempty"`    // why its output is not indexed
	Output   string           `json:"output,omitempty"`         // its output, if that is not indexed
	Denied   []string         `json:"networkDenied,omitempty"`  // hosts that it could not reach, and why
	Artifact string           `json:"artifactHandle,omitempty"` // for runtime_query_output

	executed  bool
	overLimit bool // denied because of the limit on concurrent jobs
	ended     string
}

// fill copies the outcome of a run.
func (c *commandReply) fill(ran *run.State) {
	record := ran.Record
	status, o := run.ExitOf(record)
	c.Status, c.ExitCode, c.Duration, c.Message = status, o.ExitCode, o.DurationMs, o.Message
	if o.Signal != nil {
		c.Signal = *o.Signal
	}
	c.Artifact = ran.Output.Handle
	c.Lines = ran.Output.Stdout.Lines + ran.Output.Stderr.Lines
	c.Bytes = ran.Output.Stdout.Bytes + ran.Output.Stderr.Bytes
	switch {
	case record.Status == job.Denied:
		c.Message = tool.Clean(strings.Join(record.Decision.Reasons, "; "))
		c.overLimit = record.Decision.Rule == "concurrency"
	case record.Decision.Missing != "":
		c.Status, c.Message = job.Failure, tool.AsError(Unavailable(ran.Runtime(), record.Decision.Missing)).Message
	case run.NotRun(record):
	default:
		c.executed, c.ended, c.Denied = true, ending(record), run.Denied(record)
	}
}

// ending returns how a command ended, as text.
func ending(r *job.Record) string {
	switch {
	case r.Status == job.Timeout:
		return "timed out after " + limitMs(r)
	case run.Killed(r) != "":
		return "k" + run.Killed(r)[1:]
	}
	return fmt.Sprintf("exit code %d", r.Result.ExitCode)
}

// ran reports whether any command was executed.
func (r *batchReply) ran() bool {
	return slices.ContainsFunc(r.Commands, func(c *commandReply) bool { return c.executed })
}

// artifacts returns the handles of the artifacts that were indexed.
func (r *batchReply) artifacts() []string {
	var handles []string
	for _, c := range r.Commands {
		if len(c.Indexed) > 0 {
			handles = append(handles, c.Artifact)
		}
	}
	return handles
}

// unindexed reports whether some output was not indexed.
func (r *batchReply) unindexed() bool {
	return slices.ContainsFunc(r.Commands, func(c *commandReply) bool { return c.Reason != "" })
}

// words returns the reply's text: a line for each command, then the answers.
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
	fmt.Fprintf(&b, "Executed %s (%s, %s). Indexed %s. Searched %s.\n\n## Commands\n", Counted(len(r.Commands), "command"),
		Counted(int(lines), "line"), kilobytes(bytes), Counted(sections, "section"), searched(len(r.Results)))
	for _, c := range r.Commands {
		b.WriteString("\n- " + c.line())
	}
	for _, c := range r.Commands {
		if c.Output != "" {
			fmt.Fprintf(&b, "\n\n## %s\n%s", singleLine(c.Label), c.Output)
		}
	}
	if len(r.Results) > 0 {
		b.WriteString("\n\n---\n\n" + answersText(r.Results))
	}
	if r.Reason != "" {
		b.WriteString("\n\n_(" + r.Reason + ")_")
	}
	if sections > 0 {
		b.WriteString("\n\n" + searchHint)
	}
	return b.String()
}

func searched(n int) string {
	if n == 1 {
		return "1 query"
	}
	return fmt.Sprintf("%d queries", n)
}

// line returns one line about a command.
func (c *commandReply) line() string {
	label := singleLine(c.Label)
	switch {
	case c.Status == job.Denied:
		return label + ": denied: " + singleLine(c.Message)
	case !c.executed:
		return label + ": not run: " + singleLine(c.Message)
	}
	line := fmt.Sprintf("%s: %s, %s, %s", label, c.ended, Counted(int(c.Lines), "line"), kilobytes(c.Bytes))
	if c.Reason != "" {
		line += ", not indexed: " + singleLine(c.Reason)
	}
	if len(c.Denied) > 0 {
		line += ", " + strings.Join(c.Denied, ", ")
	}
	return line
}
