package ctxtools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"corral/internal/test/mcptest"
	"corral/job"
	"corral/store/artifact"
	"corral/store/index"
)

// A memoryKnowledge is a Knowledge in memory: sections of ten lines, found by the words in them.
type memoryKnowledge struct {
	mu       sync.Mutex
	sections map[index.Base][]index.Hit   // guarded by mu
	sources  map[index.Base][]index.Added // guarded by mu: the n-th has the name suffix #n
	added    []index.Source               // guarded by mu
	hold     chan struct{}                // Add blocks until it is closed; nil does not block
	err      error                        // returned by Add
}

func (k *memoryKnowledge) Add(ctx context.Context, b index.Base, s index.Source, r io.Reader) (index.Added, error) {
	text, err := io.ReadAll(r)
	if err := errors.Join(err, k.err); err != nil {
		return index.Added{}, err
	}
	if k.hold != nil {
		select {
		case <-k.hold:
		case <-ctx.Done():
			return index.Added{}, ctx.Err()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.sections == nil {
		k.sections, k.sources = map[index.Base][]index.Hit{}, map[index.Base][]index.Added{}
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	name := s.Label
	if !s.Fixed {
		name = fmt.Sprintf("%s#%d", s.Label, len(k.sources[b])+1)
	}
	a := index.Added{Name: name, Lines: int64(len(lines)), Bytes: int64(len(text)), Terms: []string{"first_term", "second_term"}}
	n := int64(1)
	for part := range slices.Chunk(lines, 10) {
		a.Sections++
		k.sections[b] = append(k.sections[b], index.Hit{
			Source: name, Title: part[0], Text: strings.Join(part, "\n"), LineStart: n, LineEnd: n + int64(len(part)) - 1,
			Stream: s.Stream, Artifact: s.Artifact,
		})
		n += int64(len(part))
	}
	k.sources[b] = append(k.sources[b], a)
	k.added = append(k.added, s)
	return a, nil
}

func (k *memoryKnowledge) Search(_ context.Context, b index.Base, q index.Query) (*index.Found, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := &index.Found{Empty: len(k.sections[b]) == 0}
	for _, h := range k.sections[b] {
		if q.Exact && h.Source != q.Source || !strings.Contains(h.Source, q.Source) {
			continue
		}
		for line := range strings.SplitSeq(h.Text, "\n") {
			if !slices.ContainsFunc(strings.Fields(q.Text), func(w string) bool { return strings.Contains(line, w) }) {
				continue
			}
			if f.Matched++; len(f.Hits) < q.Limit {
				h.Line = line
				f.Hits = append(f.Hits, h)
			}
			break
		}
	}
	return f, nil
}

func (k *memoryKnowledge) Has(_ context.Context, b index.Base, handle, stream string) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.sections[b], func(h index.Hit) bool { return h.Artifact == handle && (stream == "" || h.Stream == stream) }), nil
}

func (k *memoryKnowledge) Stats(_ context.Context, b index.Base) (index.Stats, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return index.Stats{Sources: len(k.sources[b])}, nil
}

func (k *memoryKnowledge) Purge(ctx context.Context, b index.Base) (index.Stats, error) {
	s, err := k.Stats(ctx, b)
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.sections, b)
	delete(k.sources, b)
	return s, err
}

// names returns the names of the added sources.
func (k *memoryKnowledge) names(b index.Base) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	names := []string{}
	for _, a := range k.sources[b] {
		names = append(names, a.Name)
	}
	return names
}

// testBase is the knowledge base of asUser.
var testBase = index.Base{Repo: "app", Principal: "user:ada"}

// newCtx returns a Suite with f as engine, a real store and a memoryKnowledge.
func newCtx(t *testing.T, f *mcptest.FakeRunner) (*Suite, *memoryKnowledge) {
	t.Helper()
	k := &memoryKnowledge{}
	s := mcptest.Store(t)
	x := New(Settings{
		Engine:  &job.Engine{Policy: f, Runner: f, Auditor: f, Sessions: f},
		Outputs: s, Knowledge: k, Repos: []string{"app", "other"},
	})
	t.Cleanup(x.Close)
	return x, k
}

// readStored reads a stream of an artifact.
func readStored(t *testing.T, x *Suite, handle, stream string) string {
	t.Helper()
	var b strings.Builder
	if err := x.Outputs.Stream(t.Context(), artifact.Reader{Principal: "user:ada"}, handle, stream, &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
