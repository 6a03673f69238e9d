package index

// maxChunk is the maximum size in bytes of a chunk's text.
const maxChunk = 4 << 10

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

// A chunk is a part of a stream.
type chunk struct {
	Title string // one line of valid UTF-8 of at most 200 bytes
	// Text is valid UTF-8 of at most maxChunk bytes, and not blank. Its line n, from 0, is line LineStart+n of the stream,
	// or a part of it.
	Text               string
	LineStart, LineEnd int64  // in the stream, from 1, inclusive
	Class              string // Code or Prose, or Source.Class
}

// A summary describes a stream that was split.
type summary struct {
	Lines int64 // includes a last one without a newline
	Bytes int64 // as read
}
