package index

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
)

// chooseName chooses the name of a source, and returns the label that it contains, or "" if the name is fixed.
func chooseName(ctx context.Context, tx *sql.Tx, s *Source) (name, label string, err error) {
	if s.Fixed {
		is, err := taken(ctx, tx, s.Label, "label <> ''")
		if is {
			err = fmt.Errorf("%w\nhint: choose another name", ErrTaken)
		}
		return s.Label, "", err
	}
	for is := true; is; { // repeats at most as often as there are sources
		var n int64
		err := tx.QueryRowContext(ctx, `INSERT INTO labels SELECT ?, top + 1 FROM totals WHERE true
			ON CONFLICT(label) DO UPDATE SET n = n + 1 RETURNING n`, s.Label).Scan(&n)
		if err != nil {
			return "", "", err
		}
		name = s.Label + "#" + strconv.FormatInt(n, 10)
		if is, err = taken(ctx, tx, name, "true"); err != nil {
			return "", "", err
		}
	}
	return name, s.Label, nil
}

// taken reports whether a source that is not being removed has the name.
func taken(ctx context.Context, tx *sql.Tx, name, where string) (is bool, err error) {
	err = tx.QueryRowContext(ctx, "SELECT EXISTS(SELECT 1 FROM sources WHERE name = ? AND state <> ? AND "+where+")",
		name, stateRemoving).Scan(&is)
	return is, err
}
