// Package ctxtools implements ctx_execute, ctx_search and their siblings, which keep long output out of the caller's context:
// it is indexed, and the caller searches it.
package ctxtools

import (
	"log/slog"
	"time"

	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/index"
)

// Suite is what the tools ctx_execute, ctx_search and their siblings share. Their callers may leave out the repository, and
// arguments that are not known are ignored and named. Only standard output enters a caller's context; long output is indexed
// and can be searched.
//
// The settings must not be changed after the first call; see Renew. The owner must call Close.
type Suite struct {
	Settings

	*shared
	// patience is how long a reply waits until its output is indexed; 0 is indexTimeout.
	patience time.Duration
}

// Settings are what a Suite does, and with what.
type Settings struct {
	Engine    run.Engine
	Outputs   Kept      // nil: nothing is stored, and so nothing can be indexed
	Knowledge Knowledge // nil: nothing is indexed
	Repos     []string  // ids of the served repositories
	// Paths are the repositories' paths by id. An absolute path of a file must be in its repository's path. A repository
	// without an entry accepts relative paths only.
	Paths    map[string]string
	Repo     string   // default repository; "" is the first one that the caller may use
	Secrets  []string // values redacted from replies and artifacts
	Runtimes []string // runtimes of package runtimes that this host can run; nil is all
	// BackgroundLife is the maximum duration of a background job; 0 is DefaultBackgroundLife. The policy's limits for
	// such jobs apply as well.
	BackgroundLife time.Duration
	// MaxBackground is the maximum number of background jobs of one principal; 0 is DefaultMaxBackground.
	MaxBackground int
	// MaxBackgroundAll is the maximum number of background jobs of all principals together; 0 is unlimited.
	MaxBackgroundAll int
	// Ports returns where jobs of the caller's sessions listen; nil: it is not known.
	Ports run.Ports
	// Plain makes ctx_index store text without redacting secrets. Redaction of job output is configured in Outputs.
	Plain bool
	Log   *slog.Logger // diagnostic log; nil discards
}

// shared is what all Suites have that were renewed from one.
type shared struct {
	pending   *backlog
	processes *run.Processes
	turns     turns // serialize the indexing of one artifact
	sums      sums
	seen      run.Seen
}

// New returns a Suite.
func New(s Settings) *Suite {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	return &Suite{Settings: s, shared: &shared{pending: newBacklog(), processes: run.NewProcesses()}}
}

// Defaults of Settings.
const (
	DefaultBackgroundLife = time.Hour
	DefaultMaxBackground  = 4
)

// Renew returns a Suite with other settings, which has the background jobs, the indexing and the counts of x. Calls in progress
// keep x. The owner calls End and Close on either.
func (x *Suite) Renew(change func(*Settings)) *Suite {
	n := *x
	change(&n.Settings)
	return &n
}

// End ends the background jobs of a client session and waits for them; afterwards the client can no longer read their
// output. Options.Ended calls it.
func (x *Suite) End(principal, session string) {
	x.processes.End(run.Owner{Principal: principal, Session: session})
	x.sums.end(run.Owner{Principal: principal, Session: session})
	x.seen.End(principal, session)
}

// Close ends all background jobs and waits for them, then waits for indexing in progress: less than ten
// seconds, whatever the backlog.
func (x *Suite) Close() {
	if !x.pending.Close(x.processes.Close) {
		x.Log.Warn("stopping while output is still being indexed")
	}
}

// RepoOf returns the repository of a call: the named one, else the configured default, else the first one that the caller may
// use.
func (x *Suite) RepoOf(c tool.Caller, named string) (string, error) {
	if named == "" {
		return c.Repo(x.Repos, x.Repo, "")
	}
	if err := c.MayUse(x.Repos, named); err != nil {
		return "", err
	}
	return named, nil
}

// A repoArg is the argument repoId.
type repoArg struct {
	Repo string `arg:"repoId,max=128" about:"default: the configured or first one"`
}

// base returns the knowledge base of the caller for repo.
func (x *Suite) base(c tool.Caller, repo string) index.Base {
	return index.Base{Repo: repo, Principal: c.Principal}
}
