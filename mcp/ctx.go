package mcp

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"corral/artifact"
	"corral/index"
)

// Knowledge is a full-text index of what jobs wrote, by base: *index.Index is one.
type Knowledge interface {
	Add(ctx context.Context, b index.Base, s index.Source, r io.Reader) (index.Added, error)
	Search(ctx context.Context, b index.Base, q index.Query) (*index.Found, error)
	Has(ctx context.Context, b index.Base, artifact, stream string) (bool, error)
	Stats(ctx context.Context, b index.Base) (index.Stats, error)
	Purge(ctx context.Context, b index.Base) (index.Stats, error)
}

// Kept begins what takes the output of one job, and reads what was stored of it; *artifact.Store does.
type Kept interface {
	Outputs
	// Stream writes a stream of an artifact, artifact.Stdout or artifact.Stderr, as it is stored. With an error, what was
	// written is not to be believed.
	Stream(ctx context.Context, r artifact.Reader, handle, stream string, w io.Writer) error
}

// Ctx is what the tools ctx_execute, ctx_search and their siblings share. Their callers are those of context-mode: what they
// do not know they do not send, and what we do not know is ignored. Only standard output reaches a caller's context; what is
// large is indexed, and searched.
//
// The fields are set before the first call, and not changed. It must be closed.
type Ctx struct {
	Engine    Engine
	Outputs   Kept      // nil stores nothing, and then nothing can be indexed
	Knowledge Knowledge // nil indexes nothing
	Repos     []string  // ids of the repositories that are served
	// Paths are where the repositories are, by id: an absolute path of a file must lead there. One that is not in it takes
	// relative paths only.
	Paths    map[string]string
	Repo     string   // the one that is meant where none is named; "" is the first that the caller may use
	Secrets  []string // values that no reply and no artifact shows
	Runtimes []string // of package lang, those that this host can run; nil is all
	// BackgroundLife is how long a job runs in the background at most; 0 is DefaultBackgroundLife. What the policy says of such
	// jobs holds as well.
	BackgroundLife time.Duration
	// MaxBackground is how many jobs one principal has in the background at once; 0 is DefaultMaxBackground.
	MaxBackground int
	// MaxBackgroundAll is how many all principals have together; 0 is no bound beside theirs.
	MaxBackgroundAll int
	// Plain has ctx_index take a text as it is given: secrets in it are not hidden. Of what jobs write Outputs has to know.
	Plain bool
	Log   *slog.Logger // takes what no reply tells; nil drops it

	once    sync.Once
	life    context.Context // of jobs in the background
	end     context.CancelFunc
	running sync.WaitGroup // of these
	pending inFlightIndexing
	// patience is how long a reply waits for the index; 0 is ctxPatience.
	patience time.Duration
	jobs     jobs
	turns    turns // of artifacts that are being indexed
	sums     sums
}

// What holds where nothing else is said.
const (
	DefaultBackgroundLife = time.Hour
	DefaultMaxBackground  = 4
)

// begin makes what a Ctx has when it is used.
func (x *Ctx) begin() {
	x.once.Do(func() {
		x.life, x.end = context.WithCancel(context.Background())
		x.pending.begin()
		if x.Log == nil {
			x.Log = slog.New(slog.DiscardHandler)
		}
	})
}

// End ends the jobs that a client's session has in the background, and waits for that. Whose session it was can ask for them
// no more. It is what Options.Ended calls.
func (x *Ctx) End(principal, session string) {
	x.begin()
	x.jobs.end(owner{principal, session})
	x.sums.end(owner{principal, session})
}

// Close ends every job in the background, waits for them, and for what is being indexed: for that, less than ten seconds,
// whatever waits.
func (x *Ctx) Close() {
	x.begin()
	x.end()
	if !x.pending.close(x.running.Wait) {
		x.Log.Warn("the server ends while output is still being indexed")
	}
}

// repo is the repository that a call is about: the one that it names, else the configured one, else the first that the
// caller may use.
func (x *Ctx) repo(c Caller, named string) (string, error) {
	if named == "" {
		return c.repo(x.Repos, x.Repo, "")
	}
	if err := c.mayUse(x.Repos, named); err != nil {
		return "", err
	}
	return named, nil
}

// repoField is the argument that names it.
func repoField(into *string) field {
	return field{name: "repoId", into: into, max: 128, about: "which repository it is about; default: the one that is configured for these tools, or the first"}
}

// base is whose knowledge a call is about.
func (x *Ctx) base(c Caller, repo string) index.Base {
	return index.Base{Repo: repo, Principal: c.Principal}
}

// texts is the answer of a tool whose words are a text. What clients show of an answer differs: structured should have the
// text, too, as "text".
func texts(structured any, text string, isError bool) ToolResult {
	return ToolResult{Structured: structured, Text: text, Whole: true, IsError: isError}
}
