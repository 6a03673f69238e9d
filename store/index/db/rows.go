package db

import (
	"context"
	"database/sql"
)

// States of a source.
const (
	Adding = iota // not yet complete
	Ready
	Removing // its chunks are being removed
)

// The id of a chunk's row encodes its source, its index in the source, and whether it is code. So results can be filtered
// without another lookup, and newer sources have higher rows.
const (
	RowBits   = 24
	MaxChunks = 1 << (RowBits - 1) // per source
)

// RowOf returns the id of chunk n of a source.
func RowOf(source, n int64, code bool) int64 {
	row := source<<RowBits | n<<1
	if code {
		row |= 1
	}
	return row
}

// SourceOf returns the source of a row.
func SourceOf(row int64) int64 { return row >> RowBits }

// IsCode reports whether a row is a chunk of code.
func IsCode(row int64) bool { return row&1 == 1 }

// A Querier is a database or a transaction.
type Querier interface {
	// QueryContext is that of package database/sql.
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Numbers returns the first column of the result of a query.
func Numbers(ctx context.Context, q Querier, query string, args ...any) ([]int64, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all []int64
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, rows.Err()
}
