package artifact

import "strconv"

// Bounds of excerpts in a reply; a Query may ask for others.
const (
	DefaultExcerpts = 10
	DefaultContext  = 3
)

// A View says what of a job's output its reply shows. The zero value is counts alone.
type View struct {
	// Lines is how many lines of stdout a summary has at most; it has a quarter as many of stderr. 0 is no summary.
	Lines int
	// Terms are looked for in each line: literally, in either case by Unicode simple folding. Empty ones and those with a
	// newline are in no line.
	Terms []string
	// Fallback shows the first lines when Terms are in none.
	Fallback bool
	// Whole is how many bytes the job may write, to both streams together, to be shown all of them; 0 shows none. Over is
	// called once, as soon as it has written more, and must not block.
	Whole int64
	Over  func()
	// Ends is how many bytes of each stream's beginning are kept, and of its end, to be shown by the reply and while the job
	// runs; 0 keeps none. A stream that is no longer than both together is there as a whole.
	Ends int
}

// Names of the streams.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// An Excerpt is consecutive lines of a stream: a line that has a term, with the lines around it. A line within an excerpt
// begins no other one. The lines before a match may be in the excerpt before, too: each excerpt can be read alone.
type Excerpt struct {
	LineStart int64  `json:"lineStart"` // the first line of a stream is 1
	LineEnd   int64  `json:"lineEnd"`
	Content   string `json:"content"` // lines of at most MaxLine characters, joined by newlines; valid UTF-8
	Source    string `json:"source"`  // Stdout or Stderr
	Fallback  bool   `json:"fallback,omitempty"`
}

// wanted returns what of each stream is kept to show it.
func (v View) wanted() (stdout, stderr wanted) {
	stdout.first, stdout.last = v.Lines/2, v.Lines-v.Lines/2
	stderr.last = v.Lines / 4
	if len(v.Terms) == 0 {
		return stdout, stderr
	}
	for _, w := range []*wanted{&stdout, &stderr} {
		w.terms, w.context, w.excerpts = v.Terms, DefaultContext, DefaultExcerpts
		if v.Fallback {
			w.first = max(w.first, DefaultExcerpts)
		}
	}
	return stdout, stderr
}

// summary returns the first head and the last tail lines, and how many are between them.
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

// excerpts returns those that were found in the streams, at most most in all, stdout's first.
func found(stdout, stderr *lineReader, most int) []Excerpt {
	out := []Excerpt{}
	for _, s := range []struct {
		name string
		*lineReader
	}{{Stdout, stdout}, {Stderr, stderr}} {
		if s.lineReader == nil {
			continue
		}
		for i := range s.texts.list {
			if x := &s.texts.list[i]; len(out) < most {
				out = append(out, Excerpt{LineStart: x.start, LineEnd: x.end, Content: string(x.text), Source: s.name})
			}
		}
	}
	return out
}

// front returns the first lines, at most most of them, of the first stream that has any.
func front(stdout, stderr *lineReader, most int) []Excerpt {
	for _, s := range []struct {
		name string
		*lineReader
	}{{Stdout, stdout}, {Stderr, stderr}} {
		if s.lineReader == nil || len(s.head) == 0 || most == 0 {
			continue
		}
		var x section
		for i := range min(len(s.head), most) {
			x.add(int64(i)+1, &s.head[i])
		}
		return []Excerpt{{LineStart: x.start, LineEnd: x.end, Content: string(x.text), Source: s.name, Fallback: true}}
	}
	return []Excerpt{}
}
