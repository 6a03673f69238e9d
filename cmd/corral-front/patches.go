package main

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

// maxPatches is how many patches are known that are yet to be made, and of how many sessions the last one is.
const maxPatches = 1024

// patches have what sessions have changed stored as patches: one, as long as nothing else is changed. A small one is made
// with the list of changes, and costs little. A large one is promised, and made when somebody reads it.
type patches struct {
	runner  job.Runner
	outputs *outputs

	mu   sync.Mutex
	last map[string]*patch // guarded by mu: by session
	due  map[string]*patch // guarded by mu: those that nobody has read yet, by handle
}

// list is the Changes of a job.Engine. A patch belongs to whom the Claim names; there is none if nothing of the job is kept.
func (p *patches) list(ctx context.Context, spec job.Spec) (*job.Changes, error) {
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

// store has the patch stored, now or later, and notes it in c. small is nil if it is yet to be made.
func (p *patches) store(spec job.Spec, c *job.Changes, small *changes.Small) error {
	if small == nil {
		handle, err := p.promise(spec)
		c.Patch = handle
		return err
	}
	c.PatchIncomplete = !small.Sum.Whole()
	if small.Sum.Files == 0 { // git takes none with nothing in it
		return nil
	}
	sum := hashOf(small)
	if c.Patch = p.same(spec, sum); c.Patch != "" {
		return nil
	}
	next := newPatch(p.outputs, spec)
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

// promise returns the handle of a patch that is made when it is read: one for all that a session changes until then.
func (p *patches) promise(spec job.Spec) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := p.last[spec.Session]; last != nil && p.due[last.handle] == last {
		return last.handle, nil
	}
	next := newPatch(p.outputs, spec)
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

// same returns the handle of the session's last patch if it is this one and can be read still, else "".
func (p *patches) same(spec job.Spec, sum hash) string {
	p.mu.Lock()
	last := p.last[spec.Session]
	made := last != nil && p.due[last.handle] == nil
	p.mu.Unlock()
	if !made || last.sum != sum || !p.outputs.has(last.reader(), last.handle) {
		return ""
	}
	return last.handle
}

// remember notes the last patch of a session. It is called with mu held.
func (p *patches) remember(one *patch) {
	if p.last == nil || len(p.last) >= maxPatches {
		p.last = map[string]*patch{}
	}
	p.last[one.spec.Session] = one
}

// Query implements mcp.Artifacts. A patch that was promised is made first, with all that its session has changed by then.
func (p *patches) Query(ctx context.Context, q artifact.Query) (*artifact.Answer, error) {
	if err := p.made(ctx, &q.Reader, q.Handle); err != nil {
		return nil, err
	}
	return p.outputs.Query(ctx, q)
}

// Find implements mcp.Artifacts, as Query does.
func (p *patches) Find(ctx context.Context, r artifact.Reader, handle string) (*artifact.Manifest, error) {
	if err := p.made(ctx, &r, handle); err != nil {
		return nil, err
	}
	return p.outputs.Find(ctx, r, handle)
}

// made has a patch made that was promised, if it is r's.
func (p *patches) made(ctx context.Context, r *artifact.Reader, handle string) error {
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
		return fmt.Errorf("the patch cannot be made: %w", due.err)
	}
	return nil
}

// isFor says whether r may read a patch that is yet to be made.
func (p *patch) isFor(r *artifact.Reader) bool {
	return r.Principal == p.spec.Claim.Principal && (r.Repos == nil || slices.Contains(r.Repos, p.spec.Claim.Repo))
}
