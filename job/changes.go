package job

// Changes are what the jobs of a session have changed in an overlay of its repository, as far as a reply tells of it. A
// change is the difference between the overlay and the repository below it: what was written with the content that it
// had is none.
type Changes struct {
	Entries []Change
	// More counts changes beyond those listed.
	More int
	// Bytes is the sum of Change.Bytes of all changes, listed or not.
	Bytes int64
	// Incomplete says that not everything was looked at or could be: there may be more changes.
	Incomplete bool
	// Patch is the handle of an artifact that has all these changes as one patch, "" if there is none. PatchReason says
	// why, if there should be one.
	Patch, PatchReason string
	// PatchIncomplete says that not all that differs is in the patch, git directories apart.
	PatchIncomplete bool
}

// A Change is one path that differs.
type Change struct {
	// Path is relative to the repository. It is bytes a job chose: quote them before showing them.
	Path string
	Kind ChangeKind
	Type FileType // of what is at Path in the overlay; of a deletion, what was there
	// Bytes is the size of the file, or of the link's text; of what was deleted, that of what is gone, with all below it.
	Bytes int64
	// Sensitive says that Path, or something deleted with it, makes tools on the host run code or behave differently.
	Sensitive bool
}

// A ChangeKind says what became of a path.
type ChangeKind string

const (
	// ChangeAdded is a path that is not in the repository.
	ChangeAdded ChangeKind = "added"
	// ChangeModified is a file with another content, or a link with another text.
	ChangeModified ChangeKind = "modified"
	// ChangeDeleted is a path that is in the repository only, with all that is below it.
	ChangeDeleted ChangeKind = "deleted"
	// ChangeReplaced is a path of another type than in the repository: a directory where a file was, and the like. What was
	// below a directory is gone with it.
	ChangeReplaced ChangeKind = "replaced"
	// ChangeMode is a path whose permissions alone are others.
	ChangeMode ChangeKind = "mode"
)

// A FileType says what a path is.
type FileType string

const (
	// TypeFile is a regular file.
	TypeFile FileType = "file"
	// TypeDirectory is a directory.
	TypeDirectory FileType = "directory"
	// TypeLink is a symbolic link.
	TypeLink FileType = "link"
	// TypeOther is a FIFO, a socket or a device: it is told of, never applied.
	TypeOther FileType = "other"
)
