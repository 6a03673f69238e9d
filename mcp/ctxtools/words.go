package ctxtools

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	safe "corral/internal/text"
	"corral/job"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/policy/runtimes"
	"corral/store/artifact"
)

// A runReply is the structuredContent of the tools that run code. Fields that do not apply are absent.
type runReply struct {
	Status job.Status `json:"status" enum:"success,failure,timeout,running,cancelled,denied"`
	run.Exit
	run.Outcome
	StdoutBytes int64          `json:"stdoutBytes"` // what it wrote
	StderrBytes int64          `json:"stderrBytes"`
	Source      string         `json:"source,omitempty"`      // name under which output of this kind is indexed, for argument source of ctx_search
	Indexed     *indexedOutput `json:"indexed,omitempty"`     // what was indexed, for ctx_search
	IndexReason string         `json:"indexReason,omitempty"` // why it is not indexed
	said
}

// anyReply describes a runReply, and the jobReply that is sent in its place for a job that continues in the background.
type anyReply struct {
	runReply
	JobID     string   `json:"jobId"`     // id of a job in the background, for ctx_job
	Runtime   string   `json:"runtime"`   // runtime of that job
	StartedAt string   `json:"startedAt"` // when that job started
	Listening []string `json:"listening"` // where jobs of its session listen
}

// statusRunning is the status of a running background job.
const statusRunning job.Status = "running"

// answer returns the reply about a run whose caller asked for a timeout, 0 for none, with the texts that the ctx contract defines.
func (x *Suite) answer(ctx context.Context, ran *run.State, asked time.Duration, intent string) (tool.Result, error) {
	record := ran.Record
	switch {
	case record.Status == job.Denied:
		return tool.ErrorResult(&tool.Error{
			Code: tool.CodeDenied, Message: tool.Clean(strings.Join(record.Decision.Reasons, "; ")),
			Details: map[string]any{"reasons": record.Decision.Reasons, "auditHash": record.Decision.Hash},
		}), nil
	case record.Decision.Missing != "":
		return tool.ErrorResult(Unavailable(ran.Runtime(), record.Decision.Missing)), nil
	case record.Status == job.Cancelled && !record.Result.Stopped:
		return tool.Result{}, &tool.Error{Code: tool.CodeUnavailable, Message: "the server is shutting down"}
	}
	status, end, about := run.OutcomeOf(record)
	reply := &runReply{Status: status, Exit: end, Outcome: *about, Source: ran.Label}
	reply.Capture(ran.Output)
	reply.StdoutBytes, reply.StderrBytes = ran.Output.Stdout.Bytes, ran.Output.Stderr.Bytes
	w := &replyText{x: x, ctx: ctx, ran: ran, asked: asked, intent: intent, reply: reply}
	isError := w.write()
	w.footer()
	for _, note := range append(run.SessionNotes(record), run.Left(record)...) {
		w.b.WriteString("\n\n_(" + note + ")_")
	}
	reply.Text = w.b.String()
	return tool.TextResult(reply, reply.Text, isError), nil
}

// Unavailable is the error for a language whose program is not installed on this host.
func Unavailable(runtime, missing string) *tool.Error {
	r, _ := runtimes.Lookup(runtime)
	install := "Install " + r.Debian + "."
	if r.Debian == "" {
		install = "Install it: " + r.Elsewhere + "."
	}
	return &tool.Error{
		Code: tool.CodeUnsupported, Message: fmt.Sprintf("Runtime error: %s not available. %s", languageTitle(runtime), install),
		Details: map[string]any{"missing": tool.Clean(missing)},
	}
}

// A replyText builds the text of a reply.
type replyText struct {
	x      *Suite
	ctx    context.Context
	ran    *run.State
	asked  time.Duration // timeout; 0 is the policy's maximum, to which a longer one is cut
	intent string
	reply  *runReply
	b      strings.Builder
	also   []string // streams to index without waiting
	hidden bool     // standard error is not in the text yet
	code   bool     // the exit code is not in the text, and not 0
	cut    bool     // a part of the output is in neither the text nor the index
}

// write writes the text and reports whether the reply is an error.
func (w *replyText) write() (isError bool) {
	defer func() {
		if err := w.x.indexLater(w.ctx, w.ran, w.unshown()...); err != nil {
			w.reply.IndexReason = tool.Clean(err.Error())
		}
	}()
	record, stdout := w.ran.Record, &w.ran.Output.Stdout
	code, empty := record.Result.ExitCode, stdout.Size() == 0
	switch {
	case run.NotRun(record):
		w.b.WriteString("Runtime error: " + tool.Clean(w.reply.Message))
		return true
	case record.Status == job.Timeout && empty:
		fmt.Fprintf(&w.b, "Execution timed out after %s", limitMs(record))
		w.stream(artifact.Stderr)
		return true
	case record.Status == job.Timeout:
		w.stdout()
		w.hidden = true
		fmt.Fprintf(&w.b, "\n\n_(timed out after %s — partial output shown above)_", limitMs(record))
		return false
	case run.Killed(record) != "":
		w.b.WriteString(run.Killed(record))
	case code == 0 && empty:
		w.b.WriteString("(no output)")
		w.hidden = true
		return false
	case code == 0, code == 1 && w.ran.Runtime() == "shell" && !empty: // exit code 1 of grep: no match; of diff: files differ
		w.stdout()
		w.hidden, w.code = true, code != 0
		return false
	default:
		fmt.Fprintf(&w.b, "Exit code: %d", code)
	}
	w.failed()
	return true
}

// failed writes both streams, cut in the middle. With an intent, a long standard output is indexed and the matches are shown.
func (w *replyText) failed() {
	if w.intent != "" && w.ran.Output.Stdout.Size() > smallOutput {
		w.b.WriteString("\n\nstdout:\n")
		w.stdout()
	} else {
		w.stream(artifact.Stdout)
	}
	w.stream(artifact.Stderr)
}

// stream writes a stream with its name, without its middle if it is long.
func (w *replyText) stream(name string) {
	c := w.ran.Stream(name)
	if c.Size() > 0 {
		w.also = append(w.also, name)
	}
	w.cut = w.cut || c.Size() > rawOutput/2
	fmt.Fprintf(&w.b, "\n\n%s:\n%s", name, middleOut(c, rawOutput/2))
}

// stdout writes standard output: as it is, without its middle if it is too long, or as the index's summary.
func (w *replyText) stdout() {
	stdout := &w.ran.Output.Stdout
	n := stdout.Size()
	if n > rawOutput || n > smallOutput && w.intent != "" {
		text, err := w.indexed()
		if err == nil {
			w.b.WriteString(text)
			return
		}
		w.reply.IndexReason = tool.Clean(err.Error())
		if errors.Is(err, errStillIndexing) {
			fmt.Fprintf(&w.b, "Output: %s, still being indexed.\n\nUse ctx_search(queries: [...], source: %q) later to find what is in it.", kilobytes(n), w.ran.Label)
			return
		}
	} else if n > 0 {
		w.also = append(w.also, artifact.Stdout)
	}
	w.cut = w.cut || n > rawOutput
	w.b.WriteString(middleOut(stdout, rawOutput))
	if w.reply.IndexReason != "" {
		fmt.Fprintf(&w.b, "\n\n_(the output was not indexed: %s)_", w.reply.IndexReason)
	}
}

// indexed indexes standard output and returns the summary.
func (w *replyText) indexed() (string, error) {
	added, err := w.x.indexStream(w.ctx, w.ran, artifact.Stdout)
	if err != nil {
		return "", err
	}
	added.Truncated = added.Truncated || w.ran.Output.Stdout.Truncated // output that was not stored was not indexed either
	text, in, err := indexedText(w.ctx, w.x.Knowledge, w.x.base(w.ran.Caller, w.ran.Request.Repo), w.ran.Label, added, w.intent)
	w.reply.Indexed = in
	return text, err
}

// limitMs returns the job's time limit in milliseconds.
func limitMs(r *job.Record) string {
	return fmt.Sprintf("%dms", r.Decision.Spec.Limits.Wall.Milliseconds())
}

// middleOut returns a stream as text. If it is longer than limit bytes, its middle is replaced by a mark.
func middleOut(c *artifact.StreamCapture, limit int) string {
	head, tail := c.Head, c.Tail
	if c.Between == 0 {
		all := head + tail
		if len(all) <= limit {
			return tool.UTF8(all)
		}
		head, tail = all, all
	}
	head, tail = safe.Head(head, limit/2), safe.Tail(tail, limit/2)
	left := c.Size() - int64(len(head)+len(tail))
	return fmt.Sprintf("%s\n... (%d bytes left out) ...\n%s", tool.UTF8(head), left, tool.UTF8(tail))
}

// failed returns the result for an error: an error result or, if the call was cancelled, err itself.
func failed(err error) (tool.Result, error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return tool.Result{}, err
	}
	return tool.ErrorResult(err), nil
}
