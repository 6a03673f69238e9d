// Package changes is a front-end's side of what the jobs of a session have changed: it lists it, makes a patch of it and
// has it applied to the repository.
//
// The looking and the writing are done by corral-layer, a program of ours that runs as a job in the session's jail (see
// package layer): this package starts it through a [job.Runner], and decodes what it tells within bounds. Neither reads nor
// writes a file of the repository or of the layer. Paths are bytes that jobs chose: quote them before showing them.
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

	"corral/changes/stream"
	"corral/job"
)

// A Layer says whose changes are meant.
type Layer struct {
	Session string    // its id
	Repo    string    // absolute path of its repository
	Opened  time.Time // when it was opened; to apply only
	// Digest has Show, Patch and dry runs of Apply end with the digest of the changes. Each file that differs is read for it.
	Digest bool
	Claim  job.Claim // for the audit log: who asks
	// Pipe makes the pipes that the tool writes to, two for each run; nil is os.Pipe. A supervisor takes pipes only of the
	// user that it knows its client as.
	Pipe func() (r, w *os.File, err error)
}

// Of returns the layer of a session.
func Of(s job.Session) Layer { return Layer{Session: s.ID, Repo: s.Repo, Opened: s.Opened} }

// How long each look may take. Applying has the supervisor's limits.
const (
	listTime  = 30 * time.Second
	patchTime = 5 * time.Minute
	grace     = 30 * time.Second // for the job to begin and end
)

// DefaultList is how many changes a List names unless more are asked for.
const DefaultList = 100

// List lists the changes of a layer: at most so many, 0 is DefaultList. When sensitive paths are not among the first, as
// many again of those are listed.
func List(ctx context.Context, r job.Runner, l Layer, most int) (*job.Changes, error) {
	if most <= 0 {
		most = DefaultList
	}
	c := &job.Changes{Entries: []job.Change{}}
	sum, err := Show(ctx, r, l, most, nil, func(e *stream.Entry) error { return enlist(c, e, most) })
	if err != nil {
		return nil, err
	}
	c.More, c.Bytes, c.Incomplete = int(sum.More), sum.Bytes, sum.Incomplete
	return c, nil
}

func enlist(c *job.Changes, e *stream.Entry, most int) error {
	if len(c.Entries) >= 2*most {
		return errTooMany
	}
	c.Entries = append(c.Entries, Change(e))
	return nil
}

// errTooMany is an answer with more in it than was asked for.
var errTooMany = errors.New("corral-layer tells more than it was asked for")

// Change puts an entry into the words of replies.
func Change(e *stream.Entry) job.Change {
	c := job.Change{Path: e.Path, Kind: e.Kind, Type: e.Type, Bytes: e.Size, Sensitive: e.Sensitive}
	if e.Kind == job.ChangeDeleted {
		c.Bytes = e.OldSize
	}
	return c
}

// Show has f see the changes of a layer at and below paths (none: all), at most so many, 0 is no bound but the tool's own.
// An error of f ends it.
func Show(ctx context.Context, r job.Runner, l Layer, most int, paths []string, f func(*stream.Entry) error) (*stream.Sum, error) {
	options := append(l.options(), "-time="+listTime.String())
	if most > 0 {
		options = append(options, "-most="+strconv.Itoa(most))
	}
	return l.run(ctx, r, job.ReadOnly, listTime, append(append([]string{"list"}, options...), l.rest(paths)...), func(rec any) error {
		if e, ok := rec.(*stream.Entry); ok {
			return f(e)
		}
		return errOutOfPlace
	})
}

// errOutOfPlace is a record that has no place in this answer.
var errOutOfPlace = errors.New("corral-layer answers something else than was asked")

// Apply makes the repository what the layer says at and below paths (none: everywhere). Unless all of it can be done
// nothing is, and conflict sees why not. With dry, nothing is done in any case. Each change that is, or would be, done goes
// to applied. An error of either function does not end an apply that has begun.
//
// Unless expect is zero, nothing is done if the changes have another digest than that, which is the digest of what was
// reviewed at the same paths. The supervisor refuses an apply while jobs run in the session.
//
// The sum says how far it came: without Conflicts and with Failed "" it is done.
func Apply(ctx context.Context, r job.Runner, l Layer, expect stream.Digest, dry bool, paths []string,
	applied func(*stream.Entry) error, conflict func(stream.Conflict) error,
) (*stream.Sum, error) {
	args := append([]string{"apply", "-opened=" + strconv.FormatInt(l.Opened.UnixNano(), 10)}, l.options()...)
	if expect != (stream.Digest{}) {
		args = append(args, "-expect="+expect.String())
	}
	workspace := job.Direct
	if dry {
		args, workspace = append(args, "-dry-run"), job.ReadOnly
	}
	var told error
	sum, err := l.run(ctx, r, workspace, 0, append(args, l.rest(paths)...), func(rec any) error {
		var err error
		switch rec := rec.(type) {
		case *stream.Entry:
			err = applied(rec)
		case stream.Conflict:
			err = conflict(rec)
		default:
			return errOutOfPlace
		}
		if told == nil {
			told = err
		}
		return nil
	})
	return sum, errors.Join(err, told)
}

// options are those of every look.
func (l Layer) options() []string {
	if l.Digest {
		return []string{"-digest"}
	}
	return nil
}

// rest is the end of a command line.
func (l Layer) rest(paths []string) []string { return append([]string{"--", l.Repo}, paths...) }

// run has corral-layer run, and each see what it tells but for the sum, which is returned.
func (l Layer) run(ctx context.Context, r job.Runner, w job.Workspace, most time.Duration, args []string, each func(any) error) (*stream.Sum, error) {
	ctx, stop := context.WithCancel(ctx)
	if most > 0 { // not a limit of the job: the operator may allow less than that, or more
		ctx, stop = context.WithTimeoutCause(ctx, most+grace, fmt.Errorf("changes of session %s: not answered within %v", l.Session, most+grace))
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
	said := &stderrTail{}
	running.Go(func() { result, ran = r.Run(ctx, spec, job.Stdio{Stdout: stdout, Stderr: stderr}) })
	running.Go(func() { _, _ = io.Copy(said, errs) })
	sum, err := read(out, each)
	ended := context.Cause(ctx)
	if err != nil {
		stop()
		out.Close() // it may be writing
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
		return nil, l.broken(result, said.String())
	}
}

// broken is why the tool has not answered to the end.
func (l Layer) broken(r job.Result, said string) error {
	said = strings.TrimPrefix(strings.TrimSpace(said), "corral-layer: ")
	switch {
	case said != "":
		return fmt.Errorf("changes of session %s: %s", l.Session, said)
	case r.Limit != "":
		return fmt.Errorf("changes of session %s: the limit of %s was reached", l.Session, r.Limit)
	}
	return fmt.Errorf("changes of session %s: corral-layer ended before it had answered (%s)", l.Session, r.Status)
}

// read reads one stream to its end.
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

// A stderrTail keeps the beginning of what the tool complains of.
type stderrTail struct{ b bytes.Buffer }

const maxComplaint = 4096

func (t *stderrTail) Write(p []byte) (int, error) {
	t.b.Write(p[:min(len(p), maxComplaint-t.b.Len())])
	return len(p), nil
}

// String returns it on one line, or with a hint.
func (t *stderrTail) String() string { return t.b.String() }
