package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"corral/job"
	"corral/store/artifact"
	"corral/workspace/changes"
)

// maxPatches bounds the number of patches that are promised but not made, and of sessions whose last patch is
// remembered.
const maxPatches = 1024

// Patches stores a session's changes as patches: one patch for as long as the changes stay the same. A small patch is
// made together with the list of changes, at little cost. A large one is promised, and made when it is read.
type Patches struct {
	runner    job.Runner
	artifacts *Artifacts

	mu   sync.Mutex
	last map[string]*patch // guarded by mu; by session
	due  map[string]*patch // guarded by mu; promised patches, by handle
}

// New returns patches that jobs of runner make and that are stored in artifacts.
func New(runner job.Runner, artifacts *Artifacts) *Patches {
	return &Patches{runner: runner, artifacts: artifacts}
}

// List is job.Engine.Changes. The patch belongs to the principal of the claim. If no output of the job is stored, no
// patch is.
func (p *Patches) List(ctx context.Context, spec job.Spec) (*job.Changes, error) {
	l := layerOf(spec, "changes")
	if spec.Claim.Artifact == "" {
		return changes.List(ctx, p.runner, l, 0)
	}
	c, small, err := changes.ListPatch(ctx, p.runner, l)
	if err != nil || len(c.Entries) == 0 {
		return c, err
	}
	if err := p.store(spec, c, small); err != nil {
		c.PatchReason = err.Error()
	}
	return c, nil
}

// store stores the patch, now or when it is read, and records it in c. small is nil if the patch was too large to be
// made with the list.
func (p *Patches) store(spec job.Spec, c *job.Changes, small *changes.Small) error {
	if small == nil {
		handle, err := p.promise(spec)
		c.Patch = handle
		return err
	}
	c.PatchIncomplete = !small.Sum.Whole()
	if small.Sum.Files == 0 { // git rejects an empty patch
		return nil
	}
	sum := hashOf(small)
	if c.Patch = p.same(spec, sum); c.Patch != "" {
		return nil
	}
	next := newPatch(p.artifacts, spec)
	next.sum = sum
	if err := next.keep(small); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remember(next)
	c.Patch = next.handle
	return nil
}

// promise returns the handle of a patch that is made when it is read. It contains all changes of the session until
// then.
func (p *Patches) promise(spec job.Spec) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := p.last[spec.Session]; last != nil && p.due[last.handle] == last {
		return last.handle, nil
	}
	next := newPatch(p.artifacts, spec)
	if next.handle == "" {
		return "", errors.New(next.out.Captured().Reason)
	}
	for handle, one := range p.due {
		if len(p.due) < maxPatches {
			break
		}
		delete(p.due, handle)
		if session := one.spec.Session; p.last[session] == one {
			delete(p.last, session)
		}
	}
	if p.due == nil {
		p.due = map[string]*patch{}
	}
	p.due[next.handle] = next
	p.remember(next)
	return next.handle, nil
}

// same returns the handle of the session's last patch if it has this hash and can still be read, else "".
func (p *Patches) same(spec job.Spec, sum hash) string {
	p.mu.Lock()
	last := p.last[spec.Session]
	made := last != nil && p.due[last.handle] == nil
	p.mu.Unlock()
	if !made || last.sum != sum || !p.artifacts.Has(last.reader(), last.handle) {
		return ""
	}
	return last.handle
}

// remember records the last patch of a session. The caller holds mu.
func (p *Patches) remember(one *patch) {
	if p.last == nil || len(p.last) >= maxPatches {
		p.last = map[string]*patch{}
	}
	p.last[one.spec.Session] = one
}

// Query implements execute.Artifacts. A promised patch is made first, with all changes of its session until then.
func (p *Patches) Query(ctx context.Context, q artifact.Query) (*artifact.Answer, error) {
	if err := p.made(ctx, &q.Reader, q.Handle); err != nil {
		return nil, err
	}
	return p.artifacts.Query(ctx, q)
}

// Find implements execute.Artifacts. Like Query, it makes a promised patch first.
func (p *Patches) Find(ctx context.Context, r artifact.Reader, handle string) (*artifact.Manifest, error) {
	if err := p.made(ctx, &r, handle); err != nil {
		return nil, err
	}
	return p.artifacts.Find(ctx, r, handle)
}

// made makes a patch that was promised to r.
func (p *Patches) made(ctx context.Context, r *artifact.Reader, handle string) error {
	p.mu.Lock()
	due := p.due[handle]
	p.mu.Unlock()
	if due == nil || !due.isFor(r) {
		return nil
	}
	due.once.Do(func() { due.make(ctx, p.runner) })
	p.mu.Lock()
	delete(p.due, due.handle)
	p.mu.Unlock()
	if due.err != nil {
		return fmt.Errorf("cannot make the patch: %w", due.err)
	}
	return nil
}

// isFor reports whether r may read a promised patch.
func (p *patch) isFor(r *artifact.Reader) bool {
	return r.Principal == p.spec.Claim.Principal && (r.Repos == nil || slices.Contains(r.Repos, p.spec.Claim.Repo))
}

// layerOf returns the layer of the session of spec, to be examined for tool by a job of its own.
func layerOf(spec job.Spec, tool string) changes.Layer {
	l := changes.Layer{Session: spec.Session, Repo: spec.Repo, Claim: spec.Claim}
	l.Claim.Tool = tool
	return l
}
