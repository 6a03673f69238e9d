package ctxtools

import (
	"strings"

	safe "corral/internal/text"
	"corral/store/artifact"
)

// A part is a section of a stream.
type part struct {
	text              string
	from, next, total int64 // bytes
	missing           int64 // bytes that were requested, precede text, and are not available
}

// cut returns the requested part of a stream when only its margins are available.
func (a *jobArgs) cut(c *artifact.StreamCapture) part {
	w := a.window()
	_, _ = w.Write([]byte(c.Head))
	w.skip(c.Between)
	_, _ = w.Write([]byte(c.Tail))
	return a.lines(w.part())
}

// window returns a window for the requested part: from the offset on, or without an offset the end.
func (a *jobArgs) window() *window {
	if a.Offset == nil {
		return &window{max: rawOutput, last: true}
	}
	return &window{from: int64(*a.Offset), max: rawOutput}
}

// lines cuts p to the last a.Tail lines, if the call has tail and no offset.
func (a *jobArgs) lines(p part) part {
	if a.Tail == nil || a.Offset != nil {
		return p
	}
	at := len(strings.TrimSuffix(p.text, "\n"))
	for range *a.Tail {
		if at = strings.LastIndexByte(p.text[:max(at, 0)], '\n'); at < 0 {
			break
		}
	}
	p.from += int64(at + 1)
	p.text, p.missing = p.text[at+1:], 0
	return p
}

// A window is a Writer that keeps a part of what is written: the first max bytes from offset from on, or the last max bytes.
type window struct {
	from int64
	max  int
	last bool

	text    []byte
	at      int64 // bytes written or skipped so far
	begin   int64 // offset of text
	missing int64 // requested bytes before text that were skipped
}

// Write implements io.Writer.
func (w *window) Write(p []byte) (int, error) {
	n := len(p)
	begin := w.at
	w.at += int64(n)
	if skip := w.from - begin; skip > 0 {
		p, begin = p[min(skip, int64(n)):], min(w.from, w.at)
	}
	if len(w.text) == 0 {
		w.begin = begin
	}
	if !w.last {
		w.text = append(w.text, p[:min(len(p), w.max-len(w.text))]...)
		return n, nil
	}
	w.text = append(w.text, p[max(0, len(p)-2*w.max):]...)
	if over := len(w.text) - 2*w.max; over > 0 {
		w.text = append(w.text[:0], w.text[over:]...)
	}
	return n, nil
}

// skip advances over n bytes that are not available. The text then either begins after them or ends before them.
func (w *window) skip(n int64) {
	if n <= 0 {
		return
	}
	if asked := w.at + n - max(w.from, w.at); asked > 0 && len(w.text) == 0 {
		w.missing = asked
	}
	if w.at += n; len(w.text) > 0 && !w.last {
		w.max = len(w.text)
	} else if w.last {
		w.text = w.text[:0]
	}
}

// part returns what was kept.
func (w *window) part() part {
	text := w.text
	if w.last {
		text = text[max(0, len(text)-w.max):]
		w.begin = w.at - int64(len(text))
		w.missing = w.begin
	}
	kept := text
	if w.begin+int64(len(text)) < w.at { // something follows
		kept = safe.Complete(text)
	}
	if w.begin > 0 {
		before := len(kept)
		kept = safe.Rest(kept)
		w.begin += int64(before - len(kept))
	}
	if len(text) == 0 {
		w.begin = min(max(w.from, w.begin), w.at)
	}
	return part{text: string(kept), from: w.begin, next: w.begin + int64(len(kept)), total: w.at, missing: w.missing}
}
