package index

import (
	"errors"
	"time"

	"corral/store/index/chunk"
	"corral/store/index/db"
	"corral/store/index/search"
)

// A Base identifies a knowledge base. Any strings are allowed; they never become part of a path.
type Base = db.ID

// A Format is the format of a stream.
type Format = chunk.Format

// The formats. Auto, the zero value, detects the format.
const (
	Auto     = chunk.Auto
	Text     = chunk.Text
	Markdown = chunk.Markdown
	JSON     = chunk.JSON
)

// Classes of chunks.
const (
	Code  = chunk.Code
	Prose = chunk.Prose
)

// A Source describes a stream to add.
type Source struct {
	Label string // one line of 1 to 200 bytes; the source is named Label#n, counting from 1
	// Fixed makes the name Label itself. A former Fixed source of that name is replaced once the new one is complete. If
	// an Add without Fixed has made that name, the error is ErrTaken.
	Fixed bool
	// Artifact and Stream identify the artifact that was copied: a handle, and "stdout" or "stderr", of at most 200 bytes
	// each. "" means none.
	Artifact, Stream string

	Title  string // title of chunks without a heading; "" derives it from their text
	Format Format
	Class  string    // Code or Prose; "" decides it for each chunk
	Time   time.Time // when it was written; zero means now
}

// A Query describes what to search for.
type Query = search.Query

// Found is the result of a query.
type Found = search.Found

// A Hit is a chunk that matches.
type Hit = search.Hit

// Added describes a source that was added.
type Added struct {
	Name         string
	Sections     int      // chunks
	Lines, Bytes int64    // as read
	Terms        []string // words that distinguish this source from others, at most 40, the best first
	Truncated    bool     // it exceeded the quota or 200,000 chunks
}

// Errors to check for with errors.Is.
var (
	ErrClosed = errors.New("the index is closed")
	ErrPurged = db.ErrPurged
	ErrTaken  = errors.New("the name belongs to the output of a run")
)
