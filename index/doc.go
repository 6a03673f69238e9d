// Package index finds things again in what jobs wrote: a full-text knowledge base for each repository and principal.
//
// What is added is a Source: a stream, divided into chunks (package chunk). What is asked for is free text; it has no
// syntax but quotes, which mean words that follow each other, and no text is an error. A chunk is found by its words:
//
//	connections    connection, connected: words are stemmed (package word)
//	conecton       connection: a word that no chunk has is corrected to one that some have
//	refus          connectionrefused: or to words that it is a part of
//	dial upstream  chunks with both before chunks with one; rare words, words of one line, and phrases count for more
//
// A Base is one SQLite file in the directory index of a user's state directory, 0600 in 0700, that several processes may
// have open at once:
//
//	sources   what was added: name, time, sizes; a source is found when all of it is there, or not at all
//	chunks    the texts, compressed
//	found     the stems of titles and texts (FTS5, BM25)
//	words     the words as they were written, for corrections
//	grams     the trigrams of those (FTS5)
//
// Nothing is made before the first Add. A process may be killed at any time: the next one opens the base (WAL), and
// what was half added goes. A base that is damaged is removed, and begun anew by Options.Rebuild: all that it had is in
// artifacts. Sources go after a time, the oldest first when there is too much, and all at once by Purge, which every
// process notices. A base that nobody has open goes as a whole, when all in it is too old. Nothing follows a link; a
// directory or file that is not this user's alone is refused.
//
// Bounds: a base has a quota, which counts what a source takes of the disk and not its text alone, and 50,000 sources;
// a source has 200,000 sections; a search looks at the newest few thousand chunks of a word, and says so (Found.Cut),
// and at no more words for corrections; an Add holds a few MiB, whatever its stream is; two run at once, others wait.
//
// The library is modernc.org/sqlite and not mattn/go-sqlite3, which is up to a third faster but needs cgo: the
// front-end is one static program, and has no memory of C's to get wrong. No other package knows that there is SQL.
package index
