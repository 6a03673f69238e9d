// Package chunk divides what a job wrote into pieces that can be found and shown: a few lines each, with a title.
//
// A stream goes through three stages, none of which keeps more of it than some blocks, whatever the stream is like:
//
//	bytes → clean text (clean.go) → lines or parts of lines (lines.go) → chunks, by the stream's format
//
// Clean text is valid UTF-8 without control sequences. It has the newlines of the stream, and only those, so that a line
// of it is a line of the stream. Then nothing more is changed: a chunk's text is a run of clean text, and each line that
// has more than spaces is in a chunk. Of a line that is in several, for its length, each word is whole in one.
//
//	Markdown  a section each, its title the path of headings: Install > Linux
//	JSON      some values that follow each other, the title their path: $.results[12].error
//	text      a paragraph, or 20 lines, two of which are the next chunk's too; the title is the first line with words
//
// A stream may have 500 chunks of less than 256 bytes, as a document has; after those, tiny paragraphs and sections are
// joined, the title being that of the first: else what finds them would take many times the room that they do.
//
// JSON that breaks off is text from there on. What a stream is, if nobody says, its first block tells.
package chunk

import "io"

// MaxText is how many bytes a chunk's text has at most.
const MaxText = 4 << 10

// A Format is what a stream is written in.
type Format uint8

// The formats. Auto is the zero value: the first block of the stream tells.
const (
	Auto Format = iota
	Text
	Markdown
	JSON
)

var formatNames = [...]string{Auto: "auto", Text: "text", Markdown: "markdown", JSON: "json"}

// String returns the format's name, in lower case.
func (f Format) String() string {
	if int(f) < len(formatNames) {
		return formatNames[f]
	}
	return "unknown"
}

// Classes of chunks. What decides is said at classOf.
const (
	Code  = "code"
	Prose = "prose"
)

// Options are about a stream. The zero value is good for any.
type Options struct {
	Format Format
	Title  string // of chunks that have no heading or path; "" takes it from the chunk's text
	Class  string // of all chunks; "" is decided for each
	Terms  *Terms // is given each line of the stream once; nil is none
}

// A Chunk is a piece of a stream.
type Chunk struct {
	Title string // of at most 200 bytes, valid UTF-8, one line
	// Text is of at most MaxText bytes, valid UTF-8, and has more than spaces. Its line n, from 0, is line LineStart+n of
	// the stream, or a part of that.
	Text               string
	LineStart, LineEnd int64  // of the stream, from 1, the last included
	Class              string // Code or Prose, or as Options had it
}

// A Summary is what a stream was.
type Summary struct {
	Lines  int64 // a last one without a newline is one
	Bytes  int64 // as they were read
	Chunks int64
	Format Format // never Auto; of a stream that changed, what it was at first
}

// Split reads r to its end and calls emit with each chunk, in the order of the stream: LineStart never falls, nor does
// LineEnd. An error of emit or r, which is returned as it is, ends it; what was read before is emitted if the error is r's.
func Split(r io.Reader, o Options, emit func(Chunk) error) (Summary, error) {
	s := newSplitter(o, emit)
	err := s.read(r)
	return s.sum, err
}
