package ctxtools

import (
	"fmt"
	"strings"

	"corral/mcp/run"
	"corral/store/artifact"
)

// maxFooter is the maximum number of bytes of standard error that a footer shows.
const maxFooter = 4 << 10

// footer ends the text with what it does not say yet: standard error, how the run ended, and what the caller has to know. The reply
// to a run that wrote nothing there, succeeded and changed nothing has none.
func (w *replyText) footer() {
	text := w.b.String()
	if c := &w.ran.Output.Stderr; w.hidden && c.Size() > 0 {
		w.cut = w.cut || c.Size() > maxFooter
		text = run.Line(text) + "[stderr] " + strings.TrimSuffix(middleOut(c, maxFooter), "\n")
	}
	parts := w.notes()
	if exit := w.ran.Record.Result.ExitCode; w.code || len(parts) > 0 && exit == 0 && w.reply.ExitCode != nil {
		parts = append([]string{fmt.Sprintf("exit %d", exit), run.Duration(w.ran.Record.Result.Usage.Wall)}, parts...)
	}
	w.b.Reset()
	w.b.WriteString(run.WithFooter(text, parts))
}

// notes returns what a caller has to know about a run beyond its output and its end.
func (w *replyText) notes() []string {
	r := w.ran.Record
	parts := run.Changed(r, w.x.seen.News(w.ran.Caller, w.ran.Request.Repo, r.Changes))
	if wall := r.Decision.Spec.Limits.Wall; w.asked > wall && wall > 0 {
		parts = append(parts, fmt.Sprintf("timeout cut to %dms, the maximum", wall.Milliseconds()))
	}
	parts = append(parts, run.Reached(&r.Result)...)
	parts = append(parts, run.Denied(r)...)
	out := &w.ran.Output
	if out.Stdout.Truncated || out.Stderr.Truncated {
		parts = append(parts, run.OutputCut)
	}
	if w.cut && out.Handle != "" {
		parts = append(parts, "all of it: runtime_query_output, artifactHandle "+out.Handle)
	}
	return parts
}

// unshown returns the streams that are indexed although the text does not need it: what a search finds later.
func (w *replyText) unshown() []string {
	if w.hidden && w.ran.Output.Stderr.Size() > 0 {
		return append(w.also, artifact.Stderr)
	}
	return w.also
}
