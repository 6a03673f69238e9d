package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"corral/artifact"
	"corral/index"
	"corral/job"
	"corral/lang"
)

// A ctxReply is structuredContent of the tools that run something. What does not apply is absent.
type ctxReply struct {
	*executeReply
	StdoutBytes int64       `json:"stdoutBytes"`
	StderrBytes int64       `json:"stderrBytes"`
	Source      string      `json:"source,omitempty"`
	Indexed     *ctxIndexed `json:"indexed,omitempty"`
	IndexReason string      `json:"indexReason,omitempty"`
	Text        string      `json:"text"`
}

// A ctxIndexed is what the index made of an output.
type ctxIndexed struct {
	Source    string   `json:"source"`
	Sections  int      `json:"sections"`
	Lines     int64    `json:"lines"`
	Bytes     int64    `json:"bytes"`
	Matched   *int     `json:"matched,omitempty"`
	Terms     []string `json:"terms"`
	Truncated bool     `json:"truncated,omitempty"`
}

func indexedOf(a index.Added) *ctxIndexed {
	terms := make([]string, 0, len(a.Terms))
	for _, t := range a.Terms {
		terms = append(terms, clean(t))
	}
	return &ctxIndexed{Source: a.Name, Sections: a.Sections, Lines: a.Lines, Bytes: a.Bytes, Terms: terms, Truncated: a.Truncated}
}

func indexedSchema() *schema {
	return &schema{Type: "object", Description: "what was indexed, for ctx_search", Properties: properties{
		{"source", text("its name: argument source of ctx_search")},
		{"sections", integer("")},
		{"lines", integer("")},
		{"bytes", integer("")},
		{"matched", integer("sections that match the intent")},
		{"terms", &schema{Type: "array", Items: text(""), Description: "words that tell it from other output"}},
		{"truncated", boolean("not all of it was indexed")},
	}}
}

// statusRunning is of a job in the background.
const statusRunning job.Status = "running"

func ctxReplySchema() properties {
	return slices.Concat(properties{
		{"text", text("the same as the text block")},
		{"status", &schema{Type: "string", Enum: []string{"success", "failure", "timeout", "running", "cancelled", "denied"}}},
	}, outcomeSchema(), properties{
		{"stdoutBytes", integer("what it wrote")},
		{"stderrBytes", integer("")},
		{"source", text("what all output of this kind is indexed as: ctx_search finds it by this")},
		{"indexed", indexedSchema()},
		{"indexReason", text("why it is not indexed")},
		{"jobId", text("of a job in the background, for ctx_job")},
		{"runtime", text("of that job")},
		{"startedAt", text("when it did")},
	})
}

// answer words what became of a run, as the contract has it.
func (x *Ctx) answer(ctx context.Context, ran *ctxRan, intent string) (ToolResult, error) {
	record := ran.record
	switch {
	case record.Status == job.Denied:
		return said(&Error{
			Code: CodeDenied, Message: clean(strings.Join(record.Decision.Reasons, "; ")),
			Details: map[string]any{"reasons": record.Decision.Reasons, "auditHash": record.Decision.Hash},
		}), nil
	case record.Decision.Missing != "":
		return said(unavailable(ran.runtime, record.Decision.Missing)), nil
	case record.Status == job.Cancelled:
		return ToolResult{}, &Error{Code: CodeUnavailable, Message: "the server ends"}
	}
	reply := &ctxReply{executeReply: outcome(record), Source: ran.label}
	reply.show(ran.out, "")
	reply.StdoutBytes, reply.StderrBytes = ran.out.Stdout.Bytes, ran.out.Stderr.Bytes
	w := &replyText{x: x, ctx: ctx, ran: ran, intent: intent, reply: reply}
	isError := w.write()
	if record.Anew {
		w.b.WriteString("\n\n_(" + anew + ")_")
	}
	reply.Text = w.b.String()
	return texts(reply, reply.Text, isError), nil
}

// unavailable is a language that this host has no program for.
func unavailable(runtime, missing string) *Error {
	r, _ := lang.Lookup(runtime)
	install := "Install " + r.Debian + "."
	if r.Debian == "" {
		install = "Install it: " + r.Elsewhere + "."
	}
	return &Error{
		Code: CodeUnsupported, Message: fmt.Sprintf("Runtime error: %s not available. %s", title(runtime), install),
		Details: map[string]any{"missing": clean(missing)},
	}
}

// A replyText is an answer that is being written.
type replyText struct {
	x      *Ctx
	ctx    context.Context
	ran    *ctxRan
	intent string
	reply  *ctxReply
	b      strings.Builder
	also   []string // streams that are indexed when the answer is on its way
}

// write writes the answer, and says whether it is an error's.
func (w *replyText) write() (isError bool) {
	defer func() {
		if err := w.x.later(w.ctx, w.ran, w.also...); err != nil {
			w.reply.IndexReason = clean(err.Error())
		}
	}()
	record, stdout := w.ran.record, &w.ran.out.Stdout
	code, empty := record.Result.ExitCode, size(stdout) == 0
	switch {
	case notRun(record):
		w.b.WriteString("Runtime error: " + clean(w.reply.Message))
		return true
	case record.Status == job.Timeout && empty:
		fmt.Fprintf(&w.b, "Execution timed out after %s", limitMs(record))
		w.stream(artifact.Stderr)
		return true
	case record.Status == job.Timeout:
		w.stdout()
		fmt.Fprintf(&w.b, "\n\n_(timed out after %s — partial output shown above)_", limitMs(record))
		return false
	case killed(record) != "":
		w.b.WriteString(killed(record))
	case code == 0 && empty:
		w.b.WriteString("(no output)")
		return false
	case code == 0, code == 1 && w.ran.runtime == "shell" && !empty: // grep and diff have found nothing, or something
		w.stdout()
		return false
	default:
		fmt.Fprintf(&w.b, "Exit code: %d", code)
	}
	w.failed()
	return true
}

// failed writes both streams, within bounds. With an intent a long output is indexed, and what matches is shown.
func (w *replyText) failed() {
	if w.intent != "" && size(&w.ran.out.Stdout) > ctxSmall {
		w.b.WriteString("\n\nstdout:\n")
		w.stdout()
	} else {
		w.stream(artifact.Stdout)
	}
	w.stream(artifact.Stderr)
}

// stream writes a stream with its name, without its middle if it is long.
func (w *replyText) stream(name string) {
	c := w.ran.capture(name)
	if size(c) > ctxSmall {
		w.also = append(w.also, name)
	}
	fmt.Fprintf(&w.b, "\n\n%s:\n%s", name, middleOut(c, ctxRaw/2))
}

// stdout writes standard output: as it is, as far as it goes, or what the index says of it.
func (w *replyText) stdout() {
	stdout := &w.ran.out.Stdout
	n := size(stdout)
	if n > ctxRaw || n > ctxSmall && w.intent != "" {
		text, err := w.indexed()
		if err == nil {
			w.b.WriteString(text)
			return
		}
		w.reply.IndexReason = clean(err.Error())
		if errors.Is(err, errStill) {
			fmt.Fprintf(&w.b, "Output: %s, still being indexed.\n\nUse ctx_search(queries: [...], source: %q) later to find what is in it.", kilobytes(n), w.ran.label)
			return
		}
	} else if n > ctxSmall {
		w.also = append(w.also, artifact.Stdout)
	}
	w.b.WriteString(middleOut(stdout, ctxRaw))
	if w.reply.IndexReason != "" {
		fmt.Fprintf(&w.b, "\n\n_(the output was not indexed: %s)_", w.reply.IndexReason)
	}
}

// indexed indexes standard output, and returns what is said of it.
func (w *replyText) indexed() (string, error) {
	added, err := w.x.learn(w.ctx, w.ran, artifact.Stdout)
	if err != nil {
		return "", err
	}
	added.Truncated = added.Truncated || w.ran.out.Stdout.Truncated // what was not kept was not indexed either
	text, in, err := w.x.learned(w.ctx, w.x.base(w.ran.caller, w.ran.repo), w.ran.label, added, w.intent)
	w.reply.Indexed = in
	return text, err
}

// notRun says whether the program was not executed, which the record has a message of.
func notRun(r *job.Record) bool {
	return r.Status == job.Lost || r.Message != "" && (r.Refusal != nil || r.Status != job.Success && r.Result.ExitCode < 0)
}

// limitMs is the time that a job had.
func limitMs(r *job.Record) string {
	return fmt.Sprintf("%dms", r.Decision.Spec.Limits.Wall.Milliseconds())
}

// killed says what ended a job that did not end itself, "" if it did.
func killed(r *job.Record) string {
	limit := limitWords(r)
	switch {
	case r.Result.Signal != 0 && limit != "":
		return fmt.Sprintf("Killed by %s (%s reached)", signalName(r.Result.Signal), limit)
	case r.Result.Signal != 0:
		return "Killed by " + signalName(r.Result.Signal)
	case r.Status == job.Failure && r.Result.ExitCode == 0: // its first process was gone already when a limit ended the rest
		return fmt.Sprintf("Killed by SIGKILL (%s reached)", limit)
	}
	return ""
}

// limitWords is the limit that ended a job, "" if none did.
func limitWords(r *job.Record) string {
	limits := r.Decision.Spec.Limits
	switch r.Result.Limit {
	case job.LimitMemory:
		return "memory limit" + sized(limits.Memory)
	case job.LimitDisk:
		return "disk limit" + sized(limits.Disk)
	case job.LimitFiles:
		return "files limit"
	case job.LimitPIDs, job.LimitOutput: // which end nothing
		return ""
	}
	return r.Result.Limit
}

// sized is " 2 GiB"; "" if it is not known.
func sized(n int64) string {
	if n <= 0 {
		return ""
	}
	s := job.FormatSize(n)
	digits := strings.TrimRight(s, "KMGTiB")
	if unit := s[len(digits):]; unit != "" {
		return " " + digits + " " + unit
	}
	return " " + digits + " bytes"
}

// middleOut is a stream as text. Of one that is longer than most bytes the middle is left out, which is marked.
func middleOut(c *artifact.StreamCapture, most int) string {
	head, tail := c.Head, c.Tail
	if c.Between == 0 {
		all := head + tail
		if len(all) <= most {
			return utf8Text(all)
		}
		head, tail = all, all
	}
	head, tail = head[:min(len(head), most/2)], tail[max(0, len(tail)-most/2):]
	left := size(c) - int64(len(head)+len(tail))
	for n := 0; n < utf8.UTFMax && len(head) > 0; n++ { // no half of a character
		if r, size := utf8.DecodeLastRuneInString(head); r != utf8.RuneError || size != 1 {
			break
		}
		head = head[:len(head)-1]
		left++
	}
	for n := 0; n < utf8.UTFMax && len(tail) > 0 && !utf8.RuneStart(tail[0]); n++ {
		tail = tail[1:]
		left++
	}
	return fmt.Sprintf("%s\n... (%d bytes left out) ...\n%s", utf8Text(head), left, utf8Text(tail))
}

// ctxFailed is a tool's answer where there is no reply.
func ctxFailed(err error) (ToolResult, error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return ToolResult{}, err
	}
	return said(err), nil
}
