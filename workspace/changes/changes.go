// Package changes is the front-end's side of the changes that the jobs of a session made: it lists them, makes a
// patch of them, applies them to the repository or gives them up.
//
// The files are read and written by corral-layer, a program of corral that runs as a job in the session's jail (see
// package layer): this package starts it through a [job.Runner] and decodes its output within bounds. It neither
// reads nor writes files of the repository or of the layer. Paths are bytes chosen by jobs: quote them before showing
// them.
package changes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"corral/job"
	"corral/workspace/changes/stream"
)

// A Layer identifies the changes of a session.
type Layer struct {
	Session string    // the session's ID
	Repo    string    // absolute path of the session's repository
	Opened  time.Time // when the session was opened
	// Digest makes Show, Patch and dry runs of Apply return the digest of the changes. For it each file that differs
	// is read.
	Digest bool
	Claim  job.Claim // the caller, for the audit log
	// Pipe creates the pipes that corral-layer writes to, two for each run; nil stands for os.Pipe. A supervisor
	// accepts only pipes of the user that it authenticated as its client.
	Pipe func() (r, w *os.File, err error)
}

// Of returns the Layer of a session.
func Of(s job.Session) Layer { return Layer{Session: s.ID, Repo: s.Repo, Opened: s.Opened} }

// Time limits of each pass. Apply has only the supervisor's limits.
const (
	listTime   = 30 * time.Second
	patchTime  = 5 * time.Minute
	digestTime = time.Hour        // whatever can be applied can be reviewed
	grace      = 30 * time.Second // for the start and end of the job
)

// DefaultList is the default maximum of changes in a list.
const DefaultList = 100

// List returns at most maxEntries changes of a layer; 0 stands for DefaultList. Sensitive paths beyond that number are
// added, at most as many again.
func List(ctx context.Context, r job.Runner, l Layer, maxEntries int) (*job.Changes, error) {
	if maxEntries <= 0 {
		maxEntries = DefaultList
	}
	c := &job.Changes{Entries: []job.Change{}}
	sum, err := Show(ctx, r, l, maxEntries, nil, func(e *stream.Entry) error { return enlist(c, e, maxEntries) })
	if err != nil {
		return nil, err
	}
	c.More, c.Bytes, c.Incomplete = int(sum.More), sum.Bytes, sum.Incomplete
	return c, nil
}

func enlist(c *job.Changes, e *stream.Entry, maxEntries int) error {
	if len(c.Entries) >= 2*maxEntries {
		return errTooMany
	}
	c.Entries = append(c.Entries, Change(e))
	return nil
}

// errTooMany is the error for an answer with more records or bytes than requested.
var errTooMany = errors.New("corral-layer returned more than requested")

// Change converts an entry to a job.Change, as used in replies.
func Change(e *stream.Entry) job.Change {
	c := job.Change{Path: e.Path, Kind: e.Kind, Type: e.Type, Bytes: e.Size, Sensitive: e.Sensitive}
	if e.Kind == job.ChangeDeleted {
		c.Bytes = e.OldSize
	}
	return c
}

// Show calls f with the changes of a layer at and below paths (none: all), at most maxEntries; 0 leaves only the bound of
// corral-layer. An error of f ends it.
func Show(ctx context.Context, r job.Runner, l Layer, maxEntries int, paths []string, f func(*stream.Entry) error) (*stream.Sum, error) {
	bound := l.within(listTime)
	options := append(l.options(), "-time="+bound.String())
	if maxEntries > 0 {
		options = append(options, "-most="+strconv.Itoa(maxEntries))
	}
	return l.run(ctx, r, job.ReadOnly, bound, append(append([]string{"list"}, options...), l.rest(paths)...), records{entry: f}.call)
}

// errOutOfPlace is the error for a record that does not belong into the answer.
var errOutOfPlace = errors.New("corral-layer returned an unexpected record")

// Apply applies the changes of the layer at and below paths (none: all) to the repository. If any of them cannot be
// applied, none is, and conflict is called with the reasons. With dry, nothing is written. applied is called with
// each change that was, or would be, applied. An error of either function does not stop an apply that has begun.
//
// Unless expect is zero, nothing is applied if the digest of the changes differs from expect, the digest of what was
// reviewed at the same paths. The supervisor refuses an apply while jobs run in the session.
//
// The returned sum reports the result: all changes were applied if Conflicts is 0 and Failed is "".
func Apply(ctx context.Context, r job.Runner, l Layer, expect stream.Digest, dry bool, paths []string,
	applied func(*stream.Entry) error, conflict func(stream.Conflict) error,
) (*stream.Sum, error) {
	args := l.since("apply")
	if expect != (stream.Digest{}) {
		args = append(args, "-expect="+expect.String())
	}
	workspace := job.Direct
	if dry {
		args, workspace = append(args, "-dry-run"), job.ReadOnly
	}
	return l.report(ctx, r, workspace, append(args, l.rest(paths)...), records{entry: applied, conflict: conflict})
}

// Refresh makes the repository's present state the one that the session works on: its jobs see the repository's own files in all
// that they have not changed. newer is called with what changed in the repository since the session last took its state. conflict
// is called with what both have changed, unless it is at or below one of accepted: there the session's version is to replace the
// repository's. The supervisor refuses a refresh while jobs run in the session.
func Refresh(ctx context.Context, r job.Runner, l Layer, accepted []string,
	newer func(stream.Newer) error, conflict func(stream.Conflict) error,
) (*stream.Sum, error) {
	return l.report(ctx, r, job.Direct, append(l.since("refresh"), l.rest(accepted)...), records{newer: newer, conflict: conflict})
}

// Revert gives up what the session changed at and below paths (none: everything), and refreshes the rest. reverted is called with
// each change that is given up, and conflict as by Refresh.
func Revert(ctx context.Context, r job.Runner, l Layer, paths []string,
	reverted func(*stream.Entry) error, conflict func(stream.Conflict) error,
) (*stream.Sum, error) {
	return l.report(ctx, r, job.Direct, append(l.since("revert"), l.rest(paths)...), records{entry: reverted, conflict: conflict})
}

// Newer calls f with what changed in the repository at and below paths (none: everything) since the session last took its state, at
// most maxEntries. It takes at most the given time, after which the sum is incomplete.
func Newer(
	ctx context.Context, r job.Runner, l Layer, maxEntries int, within time.Duration, paths []string, f func(stream.Newer) error,
) (*stream.Sum, error) {
	args := append(l.since("newer"), "-most="+strconv.Itoa(maxEntries), "-time="+within.String())
	return l.run(ctx, r, job.ReadOnly, within, append(args, l.rest(paths)...), records{newer: f}.call)
}

// since returns the beginning of the command line of a command that compares times.
func (l Layer) since(verb string) []string {
	return append([]string{verb, "-opened=" + strconv.FormatInt(l.Opened.UnixNano(), 10)}, l.options()...)
}

// records are called with the records of a stream; a record without a function is an error.
type records struct {
	entry    func(*stream.Entry) error
	conflict func(stream.Conflict) error
	newer    func(stream.Newer) error
}

func (f records) call(rec any) error {
	switch rec := rec.(type) {
	case *stream.Entry:
		if f.entry != nil {
			return f.entry(rec)
		}
	case stream.Conflict:
		if f.conflict != nil {
			return f.conflict(rec)
		}
	case stream.Newer:
		if f.newer != nil {
			return f.newer(rec)
		}
	}
	return errOutOfPlace
}

// report runs a command that writes to the layer. An error of a function does not stop it.
func (l Layer) report(ctx context.Context, r job.Runner, w job.Workspace, args []string, f records) (*stream.Sum, error) {
	var callbackErr error
	sum, err := l.run(ctx, r, w, 0, args, func(rec any) error {
		err := f.call(rec)
		if errors.Is(err, errOutOfPlace) {
			return err
		}
		if callbackErr == nil {
			callbackErr = err
		}
		return nil
	})
	return sum, errors.Join(err, callbackErr)
}

// within returns the time limit of a pass that has the given limit without a digest.
func (l Layer) within(limit time.Duration) time.Duration {
	if l.Digest {
		return digestTime
	}
	return limit
}

// options returns the options of every pass.
func (l Layer) options() []string {
	if l.Digest {
		return []string{"-digest"}
	}
	return nil
}

// rest returns the end of the command line.
func (l Layer) rest(paths []string) []string { return append([]string{"--", l.Repo}, paths...) }

// run runs corral-layer, calls each with every record but the last, the sum, and returns that.
func (l Layer) run(
	ctx context.Context, r job.Runner, w job.Workspace, timeout time.Duration, args []string, each func(any) error,
) (*stream.Sum, error) {
	ctx, stop := context.WithCancel(ctx)
	if timeout > 0 { // not a limit of the job, since the operator may set a lower or a higher one
		ctx, stop = context.WithTimeoutCause(ctx, timeout+grace,
			fmt.Errorf("changes of session %s: no answer within %v", l.Session, timeout+grace))
	}
	defer stop()
	spec := job.Spec{
		Session: l.Session, Repo: l.Repo, Workspace: w, Tool: job.ToolChanges, Args: append([]string{string(job.ToolChanges)}, args...),
		Claim: l.Claim,
	}
	pipe := l.Pipe
	if pipe == nil {
		pipe = os.Pipe
	}
	out, stdout, err := pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	errs, stderr, err := pipe()
	if err != nil {
		stdout.Close()
		return nil, err
	}
	defer errs.Close()
	var running sync.WaitGroup
	var result job.Result
	var ran error
	complaint := &stderrHead{}
	running.Go(func() { result, ran = r.Run(ctx, spec, job.Stdio{Stdout: stdout, Stderr: stderr}) })
	running.Go(func() { _, _ = io.Copy(complaint, errs) })
	sum, err := read(out, each)
	ended := context.Cause(ctx)
	if err != nil {
		stop()
		out.Close() // unblocks a write of corral-layer
	}
	running.Wait()
	switch {
	case err == nil:
		return sum, nil
	case !errors.Is(err, stream.ErrCut):
		return nil, err
	case ended != nil:
		return nil, ended
	case ran != nil:
		return nil, ran
	default:
		return nil, l.broken(result, complaint.String())
	}
}

// broken returns the error for an answer that ended early.
func (l Layer) broken(r job.Result, complaint string) error {
	complaint = strings.TrimPrefix(strings.TrimSpace(complaint), "corral-layer: ")
	switch {
	case complaint != "":
		return fmt.Errorf("changes of session %s: %s", l.Session, complaint)
	case r.Limit != "":
		return fmt.Errorf("changes of session %s: the limit of %s was reached", l.Session, r.Limit)
	}
	return fmt.Errorf("changes of session %s: corral-layer ended without a complete answer (%s)", l.Session, r.Status)
}

// read reads a stream to its end.
func read(r io.Reader, each func(any) error) (*stream.Sum, error) {
	s := stream.NewReader(r)
	for {
		rec, err := s.Next()
		if err != nil {
			return nil, err
		}
		if sum, ok := rec.(*stream.Sum); ok {
			return sum, nil
		}
		if err := each(rec); err != nil {
			return nil, err
		}
	}
}

// A stderrHead keeps the first bytes of the tool's standard error.
type stderrHead struct{ b bytes.Buffer }

const maxStderr = 4096

func (t *stderrHead) Write(p []byte) (int, error) {
	t.b.Write(p[:min(len(p), maxStderr-t.b.Len())])
	return len(p), nil
}

// String returns the bytes kept. They are not escaped.
func (t *stderrHead) String() string { return t.b.String() }
