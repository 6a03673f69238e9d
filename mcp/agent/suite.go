// Package agent implements the tools that an agent uses in place of a shell: run, output, job and their siblings. They run jobs
// through the Suite of package ctxtools, so their jobs, output and limits are those of the tools there. Their replies are text
// for a model: what a program wrote and, in one line, how it ended.
package agent

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"corral/mcp/ctxtools"
	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"
)

// Group is the name that stands for all tools of this package, in lists of tools.
const Group = "agent"

// A Suite is what the tools share. Its settings must not be changed after the first call; see Renew.
type Suite struct {
	Settings

	seen  *run.Seen     // what all Suites that were renewed from one have reported
	queue time.Duration // replaces queueTime in tests
}

// Settings are what the tools work with.
type Settings struct {
	Scripts *ctxtools.Suite // runs and indexes
	// Artifacts reads stored output; nil if none is stored.
	Artifacts Artifacts
	// MaxTimeout is the maximum timeout of a call; 0 is DefaultMaxTimeout.
	MaxTimeout time.Duration
	// Reset ends the sessions of one client session of a principal in a repository, so that its next job gets a new one.
	// nil: there are no sessions to end.
	Reset func(principal, session, repo string)
	// Review returns what the jobs of the caller's session changed in a repository, at and below paths (none: all). With diff, it
	// writes a patch there instead of listing. nil: there are no sessions to review.
	Review func(ctx context.Context, c tool.Caller, repo string, paths []string, diff io.Writer) (*Review, error)
	// Refresh makes the repository's state the one that the caller's session works on. With paths, it gives up what the session
	// changed at and below them first.
	Refresh func(ctx context.Context, c tool.Caller, repo string, paths []string) (*Review, error)
	// Newer returns what changed in the repository since the caller's session took its state; nothing where there is no overlay.
	// nil: it is not known.
	Newer func(ctx context.Context, c tool.Caller, repo string) *Review
	// Ports returns where jobs of the caller's session listen; nil: it is not known.
	Ports run.Ports
}

// listening returns the part of a footer that names the ports at which jobs of a session listen; nil if there are none.
func (x *Suite) listening(ctx context.Context, c tool.Caller, repo string) []string {
	list := x.Ports.Addresses(ctx, c, repo)
	if len(list) == 0 {
		return nil
	}
	return []string{"jobs listen at " + strings.Join(list, " ")}
}

// New returns a Suite.
func New(s Settings) *Suite { return &Suite{Settings: s, seen: &run.Seen{}} }

// Artifacts reads parts of stored output. *artifact.Store implements it.
type Artifacts interface {
	// Query returns a part of an artifact's streams, as q describes it.
	Query(ctx context.Context, q artifact.Query) (*artifact.Answer, error)
}

// DefaultMaxTimeout is the default of Settings.MaxTimeout.
const DefaultMaxTimeout = 10 * time.Minute

// Tools returns the tools of x.
func (x *Suite) Tools() []tool.Tool {
	return []tool.Tool{&Run{x}, &Output{x}, &Job{x}, &Edit{x}, &Changes{x}}
}

// Names returns the names of all tools.
func Names() []string {
	var names []string
	for _, t := range New(Settings{}).Tools() {
		names = append(names, t.Name())
	}
	return names
}

// Expand returns list with Group replaced by the names of all tools; nil for nil.
func Expand(list []string) []string {
	n := slices.Index(list, Group)
	if n < 0 {
		return list
	}
	names := Names()
	rest := slices.DeleteFunc(slices.Clone(list), func(name string) bool { return name == Group || slices.Contains(names, name) })
	return append(names, rest...)
}

// Renew returns a Suite with other settings, which remembers what the replies of x reported. Calls in progress keep x.
func (x *Suite) Renew(change func(*Settings)) *Suite {
	n := *x
	change(&n.Settings)
	return &n
}

// End forgets a client session.
func (x *Suite) End(principal, session string) { x.seen.End(principal, session) }

// text returns a result of text alone.
func text(s string) (tool.Result, error) {
	return tool.Result{Text: tool.UTF8(s), Whole: true}, nil
}

// failed returns the result for a call that corral did not serve: an error result or, if the call was cancelled, err itself.
func failed(err error) (tool.Result, error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return tool.Result{}, err
	}
	r := tool.ErrorResult(err)
	r.Code, r.Structured = tool.AsError(err).Code, nil
	return r, nil
}
