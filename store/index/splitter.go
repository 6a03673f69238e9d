package index

import (
	"bytes"
	"errors"
	"io"
)

// block is the size of reads, and of the text from which the format is detected.
const blockSize = 64 << 10

// A chunkForm makes chunks of clean text of one format.
type chunkForm interface {
	// take consumes text from the start of b, and returns how much. The next call passes the rest again, with more text.
	// end reports that nothing follows.
	take(b []byte, end bool) (int, error)
}

// splitChunks divides a stream into chunks that can be searched and shown: a few lines each, with a title. It reads r to its end
// and calls emit with each chunk, in the order of the stream: LineStart and LineEnd never
// decrease. It stops at an error of emit or r and returns it unchanged. If the error is r's, what was read before is
// emitted first.
//
// A stream passes through three stages. None holds more than a few blocks of it, whatever the stream contains:
//
//	bytes → clean text (clean.go) → lines or parts of lines (lines.go) → chunks, by the stream's format
//
// Clean text is valid UTF-8 without control sequences. It has exactly the newlines of the stream, so their line numbers
// agree. It is not changed any further: the text of a chunk is a substring of clean text, and each line that is not blank
// is in a chunk. If a line is too long for one chunk, each of its words is whole in at least one.
//
//	Markdown  one section each; the title is the path of headings: Install > Linux
//	JSON      some consecutive values; the title is their path: $.results[12].error
//	text      a paragraph, or 20 lines, two of which the next chunk repeats; the title is the first line with words
//
// A stream may have 500 chunks of less than 256 bytes, as a document does. After that, tiny paragraphs and sections are
// joined under the title of the first: otherwise their index entries would take many times more space than their text.
//
// JSON that turns out to be malformed continues as text. If the format is not given, it is detected from the first block.
//
// Two stages could use libraries, which were measured in 2026:
//
//   - github.com/charmbracelet/x/ansi strips control sequences at 63 MB/s (here 144). Its Strip cannot be resumed within a
//     stream, and a sequence without an end hides all that follows: after ESC ] a job's output could no longer be found.
//   - github.com/go-json-experiment/json/jsontext reads tokens at 76 MB/s (here 146, chunks included), and buffers each
//     token: a string of 64 MiB takes 192 MiB, where 4 KiB are needed here. It refuses NaN and Infinity, which programs write.
func splitChunks(r io.Reader, o Source, emit func(chunk) error) (summary, error) {
	s := newSplitter(o, emit)
	err := s.read(r)
	return s.sum, err
}

// A splitter is the state of one splitChunks.
type splitter struct {
	o     Source
	emit  func(chunk) error
	sum   summary
	open  bool // the last line has no newline yet
	clean cleaner
	text  []byte    // clean text that no chunkForm has consumed
	form  chunkForm // nil until the format is known
	tiny  int       // number of chunks of less than tinyText bytes
}

const (
	tinyText = 256 // bytes of a chunk; the index entries of a smaller one take more space than its text
	maxTiny  = 500 // maximum number of tiny chunks per stream; further ones are joined
)

// dense reports whether a chunk of that size must be joined with the next one, since there are too many tiny chunks.
func (s *splitter) dense(bytes int) bool { return bytes < tinyText && s.tiny >= maxTiny }

func newSplitter(o Source, emit func(chunk) error) *splitter {
	return &splitter{o: o, emit: emit}
}

// read reads r to the end. It fills whole blocks, since jobs write small pieces.
func (s *splitter) read(r io.Reader) error {
	p := make([]byte, blockSize)
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
	s.text = s.clean.append(s.text, p, end)
	if s.form == nil {
		if len(s.text) < blockSize && !end {
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
	switch f {
	case JSON:
		s.form = newJSONText(s)
	case Markdown:
		s.form = &textLines{to: newMarkdown(s), n: 1}
	default:
		s.plain(1, false)
	}
}

// plain switches to plain text from line n on, or from within it if later is set.
func (s *splitter) plain(n int64, later bool) {
	s.form = &textLines{to: &plainText{s: s}, n: n, later: later}
}

// chunk emits a chunk of text that starts with line n of the stream. It strips blank lines at both ends. An empty title
// is replaced by that of the options or one from the text, an empty class by what the text looks like.
func (s *splitter) chunk(text []byte, n int64, title, class string) error {
	begin := 0
	for i, c := range text {
		if !blankByte(c) {
			break
		}
		if c == '\n' {
			begin = i + 1
			n++
		}
	}
	text = text[begin:]
	for len(text) > 0 && blankByte(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	if len(text) == 0 {
		return nil
	}
	c := chunk{Text: string(text), Title: title, LineStart: n, LineEnd: n + int64(bytes.Count(text, []byte{'\n'})), Class: class}
	if c.Title == "" {
		c.Title = shortenTitle(s.o.Title, maxTitle)
	}
	if c.Title == "" {
		c.Title = titleOf(c.Text, c.LineStart, c.LineEnd)
	}
	if s.o.Class != "" {
		c.Class = s.o.Class
	} else if c.Class == "" {
		c.Class = classOf(c.Text)
	}
	if len(c.Text) < tinyText {
		s.tiny++
	}
	return s.emit(c)
}
