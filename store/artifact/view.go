package artifact

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

// An Excerpt is a range of consecutive lines of a stream: a line that contains a term, with the lines around it. A
// match within an excerpt does not begin another one. Lines before a match may be repeated from the previous excerpt,
// so that each excerpt can be read alone.
type Excerpt struct {
	LineStart int64  `json:"lineStart"` // the first line of a stream is 1
	LineEnd   int64  `json:"lineEnd"`
	Content   string `json:"content"` // lines of at most maxLine characters, joined by newlines; valid UTF-8
	Source    string `json:"source"`  // Stdout or Stderr
	Fallback  bool   `json:"fallback,omitempty"`
}

// selection returns which lines of each stream to keep for the view.
func (v View) selection() (stdout, stderr selection) {
	stdout.First, stdout.Last = v.Lines/2, v.Lines-v.Lines/2
	stderr.Last = v.Lines / 4
	if len(v.Terms) == 0 {
		return stdout, stderr
	}
	for _, w := range []*selection{&stdout, &stderr} {
		w.Terms, w.Context, w.Excerpts = v.Terms, DefaultContext, DefaultExcerpts
		if v.Fallback {
			w.First = max(w.First, DefaultExcerpts)
		}
	}
	return stdout, stderr
}

// readers are those of the two streams, by name. A stream that is not read is missing.
type readers map[string]*lineReader

// found returns at most limit excerpts, stdout's first.
func (r readers) found(limit int) []Excerpt {
	out := []Excerpt{}
	for _, name := range [...]string{Stdout, Stderr} {
		if v := r[name]; v != nil {
			for _, x := range v.Excerpts(limit - len(out)) {
				x.Source = name
				out = append(out, x)
			}
		}
	}
	return out
}

// front returns at most limit first lines of the first stream that has any.
func (r readers) front(limit int) []Excerpt {
	for _, name := range [...]string{Stdout, Stderr} {
		if v := r[name]; v != nil {
			if x := v.Front(limit); x.LineStart > 0 {
				x.Source, x.Fallback = name, true
				return []Excerpt{x}
			}
		}
	}
	return []Excerpt{}
}
