package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"corral/internal/text"
	"corral/job"
	"corral/store/artifact"
	"corral/workspace/changes"
)

// patchRuntime is the runtime in a patch's manifest.
const patchRuntime = "patch"

// A patch contains all changes of a session at one time, as an artifact: its stdout is the patch, and its stderr lists
// what the patch does not contain.
type patch struct {
	spec   job.Spec // Session, Repo and Claim
	out    *artifact.Output
	handle string // "" if it cannot be stored
	sum    hash   // zero if the patch was not made together with the list of changes

	once sync.Once // guards make
	err  error     // of make
}

type hash [sha256.Size]byte

func newPatch(o *Artifacts, spec job.Spec) *patch {
	out := o.Begin(artifact.BeginOptions{
		Repo: spec.Claim.Repo, Runtime: patchRuntime, Principal: spec.Claim.Principal, Persist: true, Exact: true,
	})
	return &patch{spec: job.Spec{Session: spec.Session, Repo: spec.Repo, Claim: spec.Claim}, out: out, handle: out.Handle()}
}

func hashOf(s *changes.Small) (sum hash) {
	h := sha256.New()
	_, _ = h.Write(s.Text) // writing to a hash never fails
	writeMissing(h, &s.Sum)
	h.Sum(sum[:0])
	return sum
}

// keep stores a patch that is already made.
func (p *patch) keep(s *changes.Small) error {
	return p.store(func(stdout io.Writer) (*changes.PatchSum, error) {
		_, err := stdout.Write(s.Text)
		return &s.Sum, err
	})
}

// make makes the patch in a job, and stores it.
func (p *patch) make(ctx context.Context, r job.Runner) {
	l := layerOf(p.spec, "changes diff")
	l.Claim.Artifact = p.handle
	p.err = p.store(func(stdout io.Writer) (*changes.PatchSum, error) { return changes.Patch(ctx, r, l, stdout, nil) })
}

func (p *patch) store(write func(stdout io.Writer) (*changes.PatchSum, error)) error {
	defer p.out.Discard() // does nothing after Finish
	begun := time.Now()
	stdout, stderr, err := p.out.Streams()
	if err != nil {
		return err
	}
	sum, err := write(stdout)
	if err == nil {
		writeMissing(stderr, sum)
	}
	if err = errors.Join(err, stdout.Close(), stderr.Close()); err != nil {
		return err
	}
	claim := &p.spec.Claim
	p.out.Finish(&job.Record{
		Created: begun, Status: job.Success, Decision: job.Decision{Hash: claim.Decision, Code: claim.Code, Args: claim.Args},
	})
	if c := p.out.Captured(); c.Handle == "" {
		return errors.New(c.Reason)
	}
	return nil
}

// reader returns a reader with the rights of the patch's principal.
func (p *patch) reader() artifact.Reader {
	return artifact.Reader{Principal: p.spec.Claim.Principal, Repos: []string{p.spec.Claim.Repo}}
}

// writeMissing writes what a patch does not contain.
func writeMissing(w io.Writer, s *changes.PatchSum) {
	for _, line := range Missing(s) {
		_, _ = fmt.Fprintln(w, line) // a pipe that is being read, or a hash
	}
}

// Missing describes what a patch does not contain, one line each.
func Missing(s *changes.PatchSum) []string {
	var lines []string
	say := func(format string, args ...any) {
		lines = append(lines, "not in the patch: "+fmt.Sprintf(format, args...))
	}
	for _, l := range s.Left {
		say("%s: %s", text.Quote(l.Path), l.Reason)
	}
	if more := s.LeftCount - int64(len(s.Left)); more > 0 {
		say("%d more", more)
	}
	if s.OfGit > 0 {
		say("changes in .git, which git refuses in a patch; apply takes them")
	}
	if s.Incomplete {
		lines = append(lines, "not everything could be examined: there may be more changes")
	}
	return lines
}
