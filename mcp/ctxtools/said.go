package ctxtools

import (
	"strings"

	"corral/mcp/run"
	"corral/mcp/tool"
)

// A said is the text of a reply as a member of its structuredContent.
type said struct {
	Text string `json:"text"` // the same as the text block
}

func (s *said) say(text string) { s.Text = text }

// withIgnored adds to a result what it ignored of the call's arguments.
func withIgnored(r tool.Result, ignored []string) tool.Result {
	if len(ignored) == 0 {
		return r
	}
	note := "ignored: " + strings.Join(ignored, ", ")
	if e, ok := r.Structured.(*tool.Error); ok {
		cause := *e
		cause.Message += "; " + note
		return tool.ErrorResult(&cause)
	}
	r.Text = run.WithFooter(r.Text, []string{note})
	if s, ok := r.Structured.(interface{ say(text string) }); ok {
		s.say(r.Text)
	}
	return r
}
