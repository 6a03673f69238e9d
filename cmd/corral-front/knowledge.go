package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"sync"

	"corral/internal/calls"
	"corral/mcp/ctxtools"
	"corral/mcp/tool"
	"corral/policy"
	"corral/store/artifact"
	"corral/store/index"
)

// A knowledge is the index over the output of jobs, opened by the first call that needs it. If it cannot be opened,
// calls that search it fail, but not calls that run something.
type knowledge struct {
	log     *slog.Logger
	options index.Options
	state   func() (*os.File, error) // opens the directory of this user's state
	outputs *outputs                 // from which a damaged base is rebuilt

	mu     sync.Mutex
	closed bool         // guarded by mu
	index  *index.Index // guarded by mu: nil before it is opened
}

// newKnowledge returns the index, or nil if the configuration disables it.
func newKnowledge(b *backend) *knowledge {
	c := b.config.Index
	if !c.Enabled {
		return nil
	}
	return &knowledge{
		log: b.log, options: index.Options{TTL: c.TTL, MaxBytes: c.MaxBytes, Log: b.log}, state: b.supervisor.State, outputs: b.outputs,
	}
}

var errEnding = errors.New("the server is shutting down")

// opened returns the index. If it could not be opened, the next call tries again.
func (k *knowledge) opened() (*index.Index, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.index != nil:
		return k.index, nil
	case k.closed:
		return nil, errEnding
	}
	state, err := k.state()
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	defer func() { _ = state.Close() }()
	o := k.options
	o.Rebuild = k.rebuild
	x, err := index.Open(state, o)
	if err != nil {
		return nil, err
	}
	k.index = x
	return x, nil
}

// about records the repository of the call, and returns the index.
func (k *knowledge) about(ctx context.Context, b index.Base) (*index.Index, error) {
	calls.Of(ctx).Repo(b.Repo)
	return k.opened()
}

// Add implements ctxtools.Knowledge.
func (k *knowledge) Add(ctx context.Context, b index.Base, s index.Source, r io.Reader) (index.Added, error) {
	x, err := k.about(ctx, b)
	if err != nil {
		return index.Added{}, err
	}
	return x.Add(ctx, b, s, r)
}

// Search implements ctxtools.Knowledge.
func (k *knowledge) Search(ctx context.Context, b index.Base, q index.Query) (*index.Found, error) {
	x, err := k.about(ctx, b)
	if err != nil {
		return nil, err
	}
	return x.Search(ctx, b, q)
}

// Has implements ctxtools.Knowledge.
func (k *knowledge) Has(ctx context.Context, b index.Base, handle, stream string) (bool, error) {
	x, err := k.about(ctx, b)
	if err != nil {
		return false, err
	}
	return x.Has(ctx, b, handle, stream)
}

// Stats implements ctxtools.Knowledge.
func (k *knowledge) Stats(ctx context.Context, b index.Base) (index.Stats, error) {
	x, err := k.about(ctx, b)
	if err != nil {
		return index.Stats{}, err
	}
	return x.Stats(ctx, b)
}

// Purge implements ctxtools.Knowledge.
func (k *knowledge) Purge(ctx context.Context, b index.Base) (index.Stats, error) {
	x, err := k.about(ctx, b)
	if err != nil {
		return index.Stats{}, err
	}
	return x.Purge(ctx, b)
}

func (k *knowledge) close() {
	if k == nil {
		return
	}
	k.mu.Lock()
	x := k.index
	k.closed, k.index = true, nil
	k.mu.Unlock()
	if x == nil {
		return
	}
	if err := x.Close(); err != nil {
		k.log.Warn("could not close the index", "error", err)
	}
}

// rebuild is index.Options.Rebuild: it adds the stored output of a base's jobs, the oldest first.
func (k *knowledge) rebuild(ctx context.Context, b index.Base, add func(index.Source, io.Reader) error) error {
	store, err := k.outputs.opened()
	if err != nil {
		return err
	}
	return refill(ctx, store, b, add)
}

// refill adds the stored output of a base. Artifacts that are damaged, or expire meanwhile, are skipped.
func refill(ctx context.Context, store *artifact.Store, b index.Base, add func(index.Source, io.Reader) error) error {
	reader := artifact.Reader{Principal: b.Principal, Repos: []string{b.Repo}}
	list, err := store.List(reader, math.MaxInt)
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(list) {
		for _, source := range ctxtools.SourcesOf(m) {
			r, w := io.Pipe()
			var read sync.WaitGroup
			read.Go(func() { _ = w.CloseWithError(store.Stream(ctx, reader, m.ArtifactID, source.Stream, w)) })
			err := add(source, r)
			_ = r.CloseWithError(io.ErrClosedPipe)
			read.Wait()
			if err != nil && !errors.Is(err, artifact.ErrCorrupt) && !errors.Is(err, artifact.ErrNotFound) && !errors.Is(err, artifact.ErrExpired) {
				return err
			}
		}
	}
	return ctx.Err()
}

// ctxTools returns ctx_execute, ctx_search and the other ctx tools for the repositories in which anything may run, or
// no tool if there are none.
func (b *backend) ctxTools(rules *policy.Policy) []tool.Tool {
	c := b.config
	if !c.Ctx.Enabled || !c.Runtime.Enabled {
		return nil
	}
	var ids []string
	paths := map[string]string{}
	for _, r := range c.Repos {
		if len(c.For(r).Runtimes) > 0 {
			ids = append(ids, r.ID)
			paths[r.ID] = r.Path
		}
	}
	if len(ids) == 0 || c.Ctx.Repo != "" && !slices.Contains(ids, c.Ctx.Repo) {
		return nil
	}
	b.ctx.Repos, b.ctx.Paths, b.ctx.Repo, b.ctx.Secrets = ids, paths, c.Ctx.Repo, rules.Secrets()
	b.ctx.BackgroundLife, b.ctx.MaxBackground = c.Ctx.BackgroundLife, c.Ctx.MaxBackground
	b.ctx.MaxBackgroundAll = max(1, c.Runtime.MaxConcurrentJobs/2) // leaves slots for other calls
	b.ctx.Runtimes = append([]string{}, rules.Runnable()...)       // not nil, which would mean all
	return b.ctx.Tools()
}

// newCtx returns the state that tools which search the index share, runtime_query_output among them.
func (b *backend) newCtx() *ctxtools.Suite {
	x := &ctxtools.Suite{Engine: b.engine, Outputs: b.outputs, Plain: !b.config.Output.Redact, Log: b.log}
	if b.knowledge != nil { // a nil pointer in an interface is not nil
		x.Knowledge = b.knowledge
	}
	return x
}
