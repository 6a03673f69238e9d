package index

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// TestGenerations: a new generation is above all earlier ones, even if the clock was set back, and the latest is found
// among other files.
func TestGenerations(t *testing.T) {
	id := Base{Repo: "/repo", Principal: "one"}
	future := fmt.Sprintf("%s%016x", id.Prefix(), uint64(math.MaxInt64))
	names := []string{future + ".db-wal", id.Prefix() + "nonsense.db-wal", future[:len(future)-1] + ".lock"}
	next := newGeneration(id, names)
	if next <= future || !strings.HasPrefix(next, id.Prefix()) || len(next) != len(future) {
		t.Errorf("%s after %s", next, future)
	}
	if got := generation(names); got != "" {
		t.Errorf("%s has no database", got)
	}
	names = append(names, next+".db", future+".db")
	if got := generation(names); got != next {
		t.Errorf("%s, not %s", got, next)
	}
	if other := newGeneration(Base{Repo: "/other"}, names); slices.Contains(names, other+".db") || strings.HasPrefix(other, id.Prefix()) {
		t.Errorf("%s", other)
	}
}
