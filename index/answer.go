package index

import "time"

// A Query is what is looked for.
type Query struct {
	Text   string // free text; what is more than 1 KiB or 32 words is not looked at
	Limit  int    // hits at most; default 3, at most 100
	Source string // only of sources whose name has this in it, as it is written; "" is all
	Exact  bool   // Source is the whole name
	// Artifact has only sources of that artifact looked at; "" is all.
	Artifact string
	// Artifacts has only sources of these looked at; nil is all.
	Artifacts []string
	Stream    string // only sources that are this stream of an artifact; "" is all
	Class     string // only chunks of this class; "" is all
	Newest    bool   // the newest source first, not the best chunk
}

// Found is what there is of a query.
type Found struct {
	Hits []Hit
	// Matched is how many chunks have all words of the query, if they are as many as were asked for; else how many have
	// any. With Cut there are more.
	Matched int
	// Cut says that a word is too common to look at all chunks that have it: only the newest were.
	Cut       bool
	Corrected map[string]string // words that no chunk has, and what was looked for instead
	Empty     bool              // the base has no source at all
}

// A Hit is a chunk that was found.
type Hit struct {
	Source             string // its name
	Title, Text        string // valid UTF-8; Text is of at most 4 KiB
	Class              string
	Time               time.Time // of the source
	LineStart, LineEnd int64     // of the stream, from 1, the last included
	Stream, Artifact   string    // as the Source had them
	Line               string    // the line of Text that matched best
	LineNumber         int64     // of the stream
	Marks              [][2]int  // what matched: byte ranges in Text, in order, that do not overlap
}

// Stats are the sizes of a base. Zero is an empty one.
type Stats struct {
	Sources, Sections int
	Lines, Bytes      int64 // of text
	Disk              int64 // bytes of its files
	Oldest, Newest    time.Time
	BySource          []SourceStats // the newest first, 1000 at most
}

// SourceStats are those of a source.
type SourceStats struct {
	Name             string
	Time             time.Time
	Sections         int
	Lines, Bytes     int64
	Artifact, Stream string
}
