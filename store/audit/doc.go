// Package audit is the supervisors' audit log of who ran what: a directory of files with one JSON record per line,
// each with the SHA-256 of the previous line. Lines are appended and never changed; docs/reference/audit.md describes
// the format.
//
// A record's seq counts from 1 without a gap; its prev is the hash of the previous line. A job has two records:
// decided before it starts, and finished, or lost if its supervisor was killed. A request that no job is started for
// has one (refused, denied). The head is a small file with the position of the end: it shows if the last lines were
// dropped.
//
// Several supervisors of a machine share one audit log. Each Append holds the lock of the directory, and continues
// after what others wrote meanwhile. When it returns, the record is in the file and survives any crash of a
// supervisor. It is synced to disk within 20 ms; Options.Each waits for that. Nobody waits for the lock longer than
// about 5 s: a process that was stopped while it holds the lock does not block the others forever.
//
// Promised space is reserved: before a job is decided, the space for its end, and for the ends of all other open
// jobs, is allocated in the file. Without space nothing is decided, hence nothing runs. If an end cannot be written
// nevertheless, it is kept, and written before any other record.
//
// A Reader reads and verifies the audit log. It holds the lock only while it opens the files, and needs access to them only
// then: a process that drops privileges can do so afterwards. A Filter selects records that were read, and Format shows them
// as text; neither opens a file.
//
// The chain is not a signature. Root can rewrite the whole audit log; only somebody who kept the hash of a record
// elsewhere can detect that.
//
// A front-end's claims about a job are recorded unchanged, quoted and cut; nothing here parses them. The supervisor
// parses only the fixed fields at the beginning of each line, and strictly.
package audit
