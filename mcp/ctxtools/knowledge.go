package ctxtools

import (
	"context"
	"io"

	"corral/mcp/run"
	"corral/store/artifact"
	"corral/store/index"
)

// Knowledge is a full-text index of job output, in knowledge bases per repository and principal. *index.Index implements it.
type Knowledge interface {
	// Add divides the text of r into sections and adds them as a source, in place of an earlier one of the same name.
	Add(ctx context.Context, b index.Base, s index.Source, r io.Reader) (index.Added, error)
	// Search returns the sections that match q, the best first.
	Search(ctx context.Context, b index.Base, q index.Query) (*index.Found, error)
	// Has reports whether a stream of an artifact is indexed.
	Has(ctx context.Context, b index.Base, artifact, stream string) (bool, error)
	// Stats counts what b holds.
	Stats(ctx context.Context, b index.Base) (index.Stats, error)
	// Purge empties b and returns what it held.
	Purge(ctx context.Context, b index.Base) (index.Stats, error)
}

// Kept stores the output of jobs and reads it back. *artifact.Store implements it.
type Kept interface {
	run.Outputs
	// Stream writes a stored stream of an artifact (artifact.Stdout or artifact.Stderr) to w. If it returns an error, the
	// bytes already written must not be used.
	Stream(ctx context.Context, r artifact.Reader, handle, stream string, w io.Writer) error
}
