package index_test

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"corral/internal/test/logtest"
	"corral/store/index"
)

// TestQuality searches each kind of log for planted lines, as people would. logtest defines the thresholds.
func TestQuality(t *testing.T) {
	const size, planted = 64 << 10, 12
	for n, kind := range logtest.Kinds() {
		if n%3 != 0 && index.RaceScale > 1 {
			continue // SQLite is so slow then that some kinds suffice
		}
		t.Run(strings.ReplaceAll(kind, " ", "-"), func(t *testing.T) {
			score, err := logtest.MeasureKind(newBase(t), kind, 1, size, planted)
			checkScore(t, score, err)
		})
	}
}

// TestQualityOfReal searches logs of real programs in the same way. A few lines decide about one of them, so the thresholds apply to
// all together.
func TestQualityOfReal(t *testing.T) {
	var all logtest.Score
	for name, l := range logtest.Real() {
		if name != "cargo" && index.RaceScale > 1 {
			continue
		}
		score, err := logtest.MeasureReal(newBase(t), l)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all.Add(score)
	}
	t.Logf("intent %d, search %d, later %d, typo %d of %d", all.Intent, all.Search, all.Later, all.Typo, all.Planted)
	checkScore(t, all, nil)
}

func checkScore(t *testing.T, s logtest.Score, err error) {
	t.Helper()
	if err != nil || !s.Good() {
		t.Errorf("%v: intent %d, search %d, later %d, typo %d of %d\n%s", err, s.Intent, s.Search, s.Later, s.Typo, s.Planted,
			strings.Join(s.Missed, "\n"))
	}
}

// newBase returns an empty base.
func newBase(t *testing.T) *searched {
	state, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	x, err := index.Open(state, index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return &searched{t.Context(), x}
}

// searched adapts a base to logtest, as the tools use it.
type searched struct {
	ctx context.Context
	x   *index.Index
}

func (s *searched) base() index.Base { return index.Base{Repo: "/repo", Principal: "one"} }

func (s *searched) Add(r io.Reader) (string, error) {
	a, err := s.x.Add(s.ctx, s.base(), index.Source{Label: "execute:shell"}, r)
	return a.Name, err
}

func (s *searched) Find(query, source string, limit int) ([]logtest.Hit, error) {
	f, err := s.x.Search(s.ctx, s.base(), index.Query{Text: query, Source: source, Exact: source != "", Limit: limit})
	if err != nil {
		return nil, err
	}
	var hits []logtest.Hit
	for _, h := range f.Hits {
		hits = append(hits, logtest.Hit{Text: h.Text, Line: h.Line})
	}
	return hits, nil
}
