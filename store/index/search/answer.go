package search

import (
	"time"
)

// A Query describes what to search for.
type Query struct {
	Text   string // free text; only the first 1 KiB and 32 words count
	Limit  int    // maximum number of hits; default 3, at most 100
	Source string // restricts the search to sources whose name contains it, case-sensitively; "" means all
	Exact  bool   // Source is the whole name
	// Artifact restricts the search to sources of that artifact; "" means all.
	Artifact string
	// Artifacts restricts the search to sources of these artifacts; nil means all.
	Artifacts []string
	Stream    string // restricts the search to sources of this stream of an artifact; "" means all
	Class     string // restricts the search to chunks of this class; "" means all
	Newest    bool   // sorts by source, the newest first, instead of by score
}

// Found is the result of a query.
type Found struct {
	Hits []Hit
	// Matched is the number of chunks that contain all words of the query, if there are at least Limit; otherwise the
	// number that contain any. With Cut there are more.
	Matched int
	// Cut reports that a word is too common to examine all chunks that contain it; only the newest were.
	Cut       bool
	Corrected map[string]string // words that no chunk contains, and what was searched for instead
	Empty     bool              // the base has no sources
}

// A Hit is a chunk that matches.
type Hit struct {
	Source             string // its name
	Title, Text        string // valid UTF-8; Text has at most 4 KiB
	Class              string
	Time               time.Time // of the source
	LineStart, LineEnd int64     // lines of the stream, from 1, inclusive
	Stream, Artifact   string    // as in the Source
	Line               string    // line of Text that matches best
	LineNumber         int64     // number of Line in the stream
	Marks              [][2]int  // matches: byte ranges in Text, sorted, without overlaps
}
