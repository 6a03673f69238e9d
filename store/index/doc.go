// Package index is a full-text search index of what jobs wrote: one knowledge base for each repository and principal.
//
// A Source is a stream that is added, divided into chunks (splitChunks). A query is free text. Its only syntax is
// quotes, which enclose words that follow each other; no text is invalid. A chunk matches by its words:
//
//	connections    connection, connected: words are stemmed, as FTS5's porter does
//	conecton       connection: a word that no chunk contains is corrected to one that some contain
//	refus          connectionrefused: or to words that contain it
//	dial upstream  chunks with both before chunks with one; rare words, words on one line, and phrases weigh more
//
// A knowledge base is one SQLite file in the directory index of a user's state directory, with mode 0600 in 0700. Several
// processes may have it open at once:
//
//	sources   what was added: name, time, sizes; a source becomes visible as a whole once it is complete
//	found     the chunks: titles, texts and parts of their words (FTS5, porter unicode61, BM25)
//	words     the original words, for corrections
//	grams     the trigrams of those (FTS5)
//
// No file is created before the first Add. A process may be killed at any time: the next one recovers the base from the
// WAL, and removes incomplete sources. A damaged base is removed, recreated, and refilled by Options.Rebuild: everything in it
// is also in artifacts. Sources expire; the oldest are evicted when the quota is exceeded; and Purge removes all, which
// every process notices. A base that no process has open is removed as a whole when everything in it has expired. No
// symbolic link is followed, and a directory or file that other users can access is refused.
//
// Bounds: a base has a quota, which counts the disk space of a source rather than its text alone, and at most 50,000
// sources. A source has at most 200,000 chunks. A search examines the newest few thousand chunks of a word, and reports
// that it did so (Found.Cut); corrections examine a similar number of words. An Add needs a few MiB of memory for any
// stream. Two run at once, others wait.
//
// The library is modernc.org/sqlite rather than mattn/go-sqlite3, which is up to a third faster but needs cgo: the
// front-end is one static program without the memory bugs of C.
package index
