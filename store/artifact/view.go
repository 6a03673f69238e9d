package artifact

import "strconv"

// Defaults of the excerpts in a reply; a Query may request others.
const (
	DefaultExcerpts = 10
	DefaultContext  = 3
)

// A View says which parts of a job's output its reply shows. The zero value shows counts only.
type View struct {
	// Lines is the maximum number of lines of stdout in a summary; of stderr it has a quarter of that. 0 means no
	// summary.
	Lines int
	// Terms are searched for in each line: literally, ignoring case by Unicode simple folding. Empty terms and those
	// with a newline match no line.
	Terms []string
	// Fallback shows the first lines if no line contains a term.
	Fallback bool
	// Whole is the maximum number of bytes, of both streams together, up to which output is shown completely; 0 shows
	// none. Over is called once, as soon as the job has written more; it must not block.
	Whole int64
	Over  func()
	// Ends is how many bytes of each stream's beginning and of its end are kept for the reply and for Margins; 0
	// keeps none. A stream that is not longer than both is kept completely.
	Ends int
}

// Names of the streams.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// An Excerpt is a range of consecutive lines of a stream: a line that contains a term, with the lines around it. A
// match within an excerpt does not begin another one. Lines before a match may be repeated from the previous excerpt,
// so that each excerpt can be read alone.
type Excerpt struct {
	LineStart int64  `json:"lineStart"` // the first line of a stream is 1
	LineEnd   int64  `json:"lineEnd"`
	Content   string `json:"content"` // lines of at most MaxLine characters, joined by newlines; valid UTF-8
	Source    string `json:"source"`  // Stdout or Stderr
	Fallback  bool   `json:"fallback,omitempty"`
}

// selection returns which lines of each stream to keep for the view.
func (v View) selection() (stdout, stderr selection) {
	stdout.first, stdout.last = v.Lines/2, v.Lines-v.Lines/2
	stderr.last = v.Lines / 4
	if len(v.Terms) == 0 {
		return stdout, stderr
	}
	for _, w := range []*selection{&stdout, &stderr} {
		w.terms, w.context, w.excerpts = v.Terms, DefaultContext, DefaultExcerpts
		if v.Fallback {
			w.first = max(w.first, DefaultExcerpts)
		}
	}
	return stdout, stderr
}

// summary returns the first head and the last tail lines, and how many lines are between them.
func (v *lineReader) summary(head, tail int, omitted bool) string {
	n := int(min(int64(head), v.n))
	var b []byte
	for i := range n {
		b = appendLine(b, &v.head[i])
	}
	rest := v.n - int64(n)
	if between := rest - int64(tail); between > 0 && omitted {
		b = append(b, "\n... ("...)
		b = strconv.AppendInt(b, between, 10)
		b = append(b, " lines omitted) ...\n\n"...)
	}
	for _, l := range v.lastLines(int(min(int64(tail), rest))) {
		b = appendLine(b, l)
	}
	if len(b) > 0 && !v.terminated {
		b = b[:len(b)-1]
	}
	return string(b)
}

func appendLine(dst []byte, l *line) []byte { return append(l.appendTo(dst), '\n') }

// found returns at most limit excerpts of the streams, stdout's first.
func found(stdout, stderr *lineReader, limit int) []Excerpt {
	out := []Excerpt{}
	for _, s := range []struct {
		name string
		*lineReader
	}{{Stdout, stdout}, {Stderr, stderr}} {
		if s.lineReader == nil {
			continue
		}
		for i := range s.texts.list {
			if x := &s.texts.list[i]; len(out) < limit {
				out = append(out, Excerpt{LineStart: x.start, LineEnd: x.end, Content: string(x.text), Source: s.name})
			}
		}
	}
	return out
}

// front returns at most limit first lines of the first stream that has any.
func front(stdout, stderr *lineReader, limit int) []Excerpt {
	for _, s := range []struct {
		name string
		*lineReader
	}{{Stdout, stdout}, {Stderr, stderr}} {
		if s.lineReader == nil || len(s.head) == 0 || limit == 0 {
			continue
		}
		var x section
		for i := range min(len(s.head), limit) {
			x.add(int64(i)+1, &s.head[i])
		}
		return []Excerpt{{LineStart: x.start, LineEnd: x.end, Content: string(x.text), Source: s.name, Fallback: true}}
	}
	return []Excerpt{}
}
