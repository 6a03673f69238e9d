// Package artifact stores the output of jobs.
//
// An Output receives the two streams of one job for the engine (job.Output). Each stream passes through:
//
//	pipe → redaction → lines (shown in a reply) → bounds (head and tail) → SHA-256, gzip → file
//	       redact      lines                      spool                                   disk
//
// Everything that is shown, stored, hashed and measured is the stream after redaction; only Total counts what the job
// wrote. Memory is bounded: about 3 MiB per stream, however long it is and whether it has newlines or not. The files
// are created while the job runs, so that for short output a reply waits only for three writes and a rename.
//
// A Store is a directory of artifacts, one directory each, named by its handle:
//
//	manifest.json   owner, program, outcome, sizes, hashes, time of expiry
//	stdout.gz       gzip (RFC 1952), one member
//	stderr.gz
//
// An artifact appears by one rename, complete or not at all. Several processes of one user share a store without a
// daemon. What a killed process left is recognized by a lock that no process holds, and removed. Each read checks the
// TTL; the sweep frees the disk space. Each commit enforces the quotas by count and bytes by evicting the oldest
// artifacts.
//
// An artifact belongs to a principal and a repository; for everybody else it does not exist (ErrNotFound). The header
// of each stream has a hash of the principal, so that this holds even if the manifest is damaged. Data is checked
// against its SHA-256 before any of it is returned. An answer has at most about 1 MiB of text, and the number of
// concurrent queries is limited to the number of processors.
//
// The package never follows a symbolic link, never opens a path below the store by a name with a slash in it, and
// after the job's end never waits for another process that holds the job's pipe open.
package artifact
