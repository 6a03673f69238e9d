package job

// Changes lists what the jobs of a session have changed in an overlay of its repository, as far as a reply shows it.
// A change is a difference between the overlay and the repository below it: a file rewritten with the same content is
// not one.
type Changes struct {
	Entries []Change
	// More counts changes beyond those in Entries.
	More int
	// Bytes is the sum of Change.Bytes of all changes, listed or not.
	Bytes int64
	// Incomplete reports that some paths could not be examined or were left out: there may be more changes.
	Incomplete bool
	// Patch is the handle of an artifact that holds all these changes as one patch, or "". PatchReason says why a
	// patch that was due is missing.
	Patch, PatchReason string
	// PatchIncomplete reports that the patch lacks some of the differences, other than those in git directories.
	PatchIncomplete bool
}

// A Change is one path that differs from the repository.
type Change struct {
	// Path is relative to the repository. A job chose these bytes: quote them before showing them.
	Path string
	Kind ChangeKind
	Type FileType // of the entry in the overlay; for a deletion, of the deleted entry
	// Bytes is the size of the file or of the link's target text; for a deletion, the size of everything deleted.
	Bytes int64
	// Sensitive reports that Path, or something deleted with it, can make tools on the host run code or behave
	// differently.
	Sensitive bool
}

// A ChangeKind says how a path changed.
type ChangeKind string

const (
	// ChangeAdded means that the path is not in the repository.
	ChangeAdded ChangeKind = "added"
	// ChangeModified means that a file has other content, or a link another target.
	ChangeModified ChangeKind = "modified"
	// ChangeDeleted means that the path, with everything below it, is in the repository only.
	ChangeDeleted ChangeKind = "deleted"
	// ChangeReplaced means that the path has another type than in the repository, such as a directory in place of a
	// file. Everything below a replaced directory is deleted with it.
	ChangeReplaced ChangeKind = "replaced"
	// ChangeMode means that only the permissions differ.
	ChangeMode ChangeKind = "mode"
)

// A FileType is the type of a directory entry.
type FileType string

const (
	// TypeFile is a regular file.
	TypeFile FileType = "file"
	// TypeDirectory is a directory.
	TypeDirectory FileType = "directory"
	// TypeLink is a symbolic link.
	TypeLink FileType = "link"
	// TypeOther is a FIFO, a socket or a device: it is reported, never applied.
	TypeOther FileType = "other"
)
