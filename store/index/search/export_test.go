package search

import (
	"context"
	"database/sql"
)

// MaxGathered is the maximum number of words that Gathered returns.
const MaxGathered = maxGathered

// Gathered runs a query and returns how many words were examined for corrections.
func Gathered(ctx context.Context, tx *sql.Tx, q Query) (int, error) {
	s := &search{ctx: ctx, tx: tx, query: q, found: &Found{}}
	err := s.run()
	return s.gathered, err
}
