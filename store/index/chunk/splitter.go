package chunk

import (
	"bytes"
	"errors"
	"io"
)

// block is the size of reads, and of the text from which the format is detected.
const block = 64 << 10

// A form makes chunks of clean text of one format.
type form interface {
	// take consumes text from the start of b, and returns how much. The next call passes the rest again, with more text.
	// end reports that nothing follows.
	take(b []byte, end bool) (int, error)
}

// Split reads r to its end and calls emit with each chunk, in the order of the stream: LineStart and LineEnd never
// decrease. It stops at an error of emit or r and returns it unchanged. If the error is r's, what was read before is
// emitted first.
func Split(r io.Reader, o Options, emit func(Chunk) error) (Summary, error) {
	s := newSplitter(o, emit)
	err := s.read(r)
	return s.sum, err
}

// A splitter is the state of one Split.
type splitter struct {
	o     Options
	emit  func(Chunk) error
	sum   Summary
	open  bool // the last line has no newline yet
	clean cleaner
	text  []byte // clean text that no form has consumed
	form  form   // nil until the format is known
	tiny  int    // number of chunks of less than tinyText bytes
}

const (
	tinyText = 256 // bytes of a chunk; the index entries of a smaller one take more space than its text
	maxTiny  = 500 // maximum number of tiny chunks per stream; further ones are joined
)

// dense reports whether a chunk of that size must be joined with the next one, since there are too many tiny chunks.
func (s *splitter) dense(bytes int) bool { return bytes < tinyText && s.tiny >= maxTiny }

func newSplitter(o Options, emit func(Chunk) error) *splitter { return &splitter{o: o, emit: emit} }

// read reads r to the end. It fills whole blocks, since jobs write small pieces.
func (s *splitter) read(r io.Reader) error {
	p := make([]byte, block)
	for n, idle := 0, 0; ; {
		got, err := r.Read(p[n:])
		n += got
		if idle++; got > 0 {
			idle = 0
		}
		if err == nil && idle == 100 {
			err = io.ErrNoProgress
		}
		if err == nil && n < len(p) {
			continue
		}
		if failed := s.write(p[:n], err != nil); failed != nil || errors.Is(err, io.EOF) {
			return failed
		}
		if err != nil {
			return err
		}
		n = 0
	}
}

// write processes the next bytes of the stream. end reports that they are the last.
func (s *splitter) write(p []byte, end bool) error {
	s.count(p, end)
	had := len(s.text)
	s.text = s.clean.append(s.text, p, end)
	if s.o.Terms != nil {
		s.o.Terms.write(s.text[had:])
	}
	if s.form == nil {
		if len(s.text) < block && !end {
			return nil
		}
		s.begin()
	}
	for at := 0; ; {
		f := s.form
		n, err := f.take(s.text[at:], end)
		if err != nil {
			return err
		}
		at += n
		if f == s.form { // otherwise the new form consumes the rest
			s.text = s.text[:copy(s.text, s.text[at:])]
			return nil
		}
	}
}

// count counts bytes and lines.
func (s *splitter) count(p []byte, end bool) {
	s.sum.Bytes += int64(len(p))
	s.sum.Lines += int64(bytes.Count(p, []byte{'\n'}))
	if len(p) > 0 {
		s.open = p[len(p)-1] != '\n'
	}
	if end && s.open {
		s.sum.Lines++
	}
}

// begin chooses the form.
func (s *splitter) begin() {
	f := s.o.Format
	if f == Auto {
		f = detect(s.text)
	}
	s.sum.Format = f
	switch f {
	case JSON:
		s.form = newJSONText(s)
	case Markdown:
		s.form = &lines{to: newMarkdown(s), n: 1}
	default:
		s.sum.Format = Text
		s.plain(1, false)
	}
}

// plain switches to plain text from line n on, or from within it if later is set.
func (s *splitter) plain(n int64, later bool) {
	s.form = &lines{to: &plainText{s: s}, n: n, later: later}
}

// chunk emits a chunk of text that starts with line n of the stream. It strips blank lines at both ends. An empty title
// is replaced by that of the options or one from the text, an empty class by what the text looks like.
func (s *splitter) chunk(text []byte, n int64, title, class string) error {
	begin := 0
	for i, c := range text {
		if !blank(c) {
			break
		}
		if c == '\n' {
			begin = i + 1
			n++
		}
	}
	text = text[begin:]
	for len(text) > 0 && blank(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	if len(text) == 0 {
		return nil
	}
	c := Chunk{Text: string(text), Title: title, LineStart: n, LineEnd: n + int64(bytes.Count(text, []byte{'\n'})), Class: class}
	if c.Title == "" {
		c.Title = shorten(s.o.Title, maxTitle)
	}
	if c.Title == "" {
		c.Title = titleOf(c.Text, c.LineStart, c.LineEnd)
	}
	if s.o.Class != "" {
		c.Class = s.o.Class
	} else if c.Class == "" {
		c.Class = classOf(c.Text)
	}
	s.sum.Chunks++
	if len(c.Text) < tinyText {
		s.tiny++
	}
	return s.emit(c)
}
