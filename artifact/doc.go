// Package artifact keeps what jobs wrote.
//
// An Output takes the two streams of one job, as the engine wants it (job.Output). Each stream goes one way:
//
//	pipe → redaction → lines (what a reply shows) → bounds (head and tail) → SHA-256, gzip → file
//
// What is shown, stored, hashed and measured is the stream after redaction; Total is what the job produced. Memory is
// bounded: about 3 MiB for a stream, however long it is and whether it has newlines or not. The files are made while the
// job runs; of short output a reply waits for three writes and a rename.
//
// A Store is a directory of artifacts, one directory each, named by its handle:
//
//	manifest.json   whose it is, what ran, how it ended, sizes, hashes, when it expires
//	stdout.gz       gzip (RFC 1952), one member; what is short is in it as it is
//	stderr.gz
//
// An artifact appears by one rename, complete or not at all. Several processes of one user share a store without a
// daemon. What a killed one left is recognized by a lock that nobody holds, and removed. TTL is honored by each read;
// the sweep is what frees the disk. Quotas by count and bytes are kept at each commit, the oldest artifact goes first.
//
// Artifacts belong to a principal and a repository. To everybody else they do not exist: ErrNotFound. The header of each
// stream has a hash of the principal, so that this holds when the manifest is damaged. What is read is checked against its
// SHA-256 before any of it is returned. An answer has about 1 MiB of text at most; as many queries read at once as there
// are processors.
//
// It never follows a link, never opens a path below the store by name with a slash in it, and never waits for whoever
// holds a job's pipe open after the job has ended.
package artifact
