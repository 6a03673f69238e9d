package ctxtools

import (
	"context"
	"errors"

	"corral/mcp/execute"
	"corral/mcp/tool"
	"corral/store/artifact"
	"corral/store/index"
)

// Fuzzy returns the index for match "fuzzy" of runtime_query_output, nil if indexing is disabled.
func (x *Suite) Fuzzy() execute.FuzzyIndex {
	if x == nil || x.Knowledge == nil {
		return nil
	}
	return fuzzyIndex{x}
}

// A fuzzyIndex implements FuzzyIndex.
type fuzzyIndex struct{ x *Suite }

// IndexArtifact implements FuzzyIndex.
func (f fuzzyIndex) IndexArtifact(ctx context.Context, b index.Base, m *artifact.Manifest) error {
	switch err := f.x.indexArtifact(ctx, b, m); {
	case errors.Is(err, errStillIndexing), errors.Is(err, errFull):
		return execute.ErrNotIndexed
	case err != nil:
		return indexError(ctx, err)
	}
	return nil
}

// Search implements FuzzyIndex.
func (f fuzzyIndex) Search(ctx context.Context, b index.Base, q index.Query) (*index.Found, error) {
	found, err := f.x.Knowledge.Search(ctx, b, q)
	if err != nil {
		return nil, indexError(ctx, err)
	}
	return found, nil
}

// indexArtifact indexes the streams of an artifact that are not indexed yet.
func (x *Suite) indexArtifact(ctx context.Context, b index.Base, m *artifact.Manifest) error {
	c := &indexTask{base: b, trace: tool.CallerOf(ctx).Trace, tool: "runtime_query_output"}
	for _, source := range SourcesOf(m) {
		has, err := x.Knowledge.Has(ctx, b, m.ArtifactID, source.Stream)
		if err != nil {
			return err
		}
		if !has {
			c.sources = append(c.sources, source)
		}
	}
	if len(c.sources) == 0 {
		return nil
	}
	_, err := x.indexAndWait(ctx, c)
	return err
}

// SourcesOf returns an index source for each stream of an artifact that is not empty.
func SourcesOf(m *artifact.Manifest) []index.Source {
	var sources []index.Source
	add := func(stream string, bytes int64) {
		if bytes > 0 {
			sources = append(sources, index.Source{Label: languageLabel(m.Runtime), Artifact: m.ArtifactID, Stream: stream, Time: m.CreatedAt})
		}
	}
	add(artifact.Stdout, m.StdoutBytes)
	add(artifact.Stderr, m.StderrBytes)
	return sources
}
