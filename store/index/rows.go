package index

import (
	"context"
	"database/sql"
)

// States of a source.
const (
	stateAdding = iota // not yet complete
	stateReady
	stateRemoving // its chunks are being removed
)

// The id of a chunk's row encodes its source, its index in the source, and whether it is code. So results can be filtered
// without another lookup, and newer sources have higher rows.
const (
	rowBits   = 24
	maxChunks = 1 << (rowBits - 1) // per source
)

// rowOf returns the id of chunk n of a source.
func rowOf(source, n int64, code bool) int64 {
	row := source<<rowBits | n<<1
	if code {
		row |= 1
	}
	return row
}

// sourceOf returns the source of a row.
func sourceOf(row int64) int64 { return row >> rowBits }

// isCode reports whether a row is a chunk of code.
func isCode(row int64) bool { return row&1 == 1 }

// A querier is a database or a transaction.
type querier interface {
	// QueryContext is that of package database/sql.
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// column returns the first column of the result of a query.
func column[T int64 | string](ctx context.Context, q querier, query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all []T
	for rows.Next() {
		var value T
		if err := rows.Scan(&value); err != nil {
			return nil, err
		}
		all = append(all, value)
	}
	return all, rows.Err()
}
