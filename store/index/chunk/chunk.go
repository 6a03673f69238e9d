// Package chunk divides what a job wrote into chunks that can be searched and shown: a few lines each, with a title.
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
package chunk

// MaxText is the maximum size in bytes of a chunk's text.
const MaxText = 4 << 10

// A Format is the format of a stream.
type Format uint8

// The formats. Auto, the zero value, detects the format from the first block of the stream.
const (
	Auto Format = iota
	Text
	Markdown
	JSON
)

// Classes of chunks. See classOf.
const (
	Code  = "code"
	Prose = "prose"
)

// Options describe a stream. The zero value suits any.
type Options struct {
	Format Format
	Title  string // title of chunks without a heading or path; "" derives it from the chunk's text
	Class  string // class of all chunks; "" decides it for each
	Terms  *Terms // receives each line of the stream once; may be nil
}

// A Chunk is a part of a stream.
type Chunk struct {
	Title string // one line of valid UTF-8 of at most 200 bytes
	// Text is valid UTF-8 of at most MaxText bytes, and not blank. Its line n, from 0, is line LineStart+n of the stream,
	// or a part of it.
	Text               string
	LineStart, LineEnd int64  // in the stream, from 1, inclusive
	Class              string // Code or Prose, or Options.Class
}

// A Summary describes a stream that was split.
type Summary struct {
	Lines  int64 // includes a last one without a newline
	Bytes  int64 // as read
	Chunks int64
	Format Format // never Auto; the initial one if it changed
}
