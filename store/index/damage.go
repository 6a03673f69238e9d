package index

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"modernc.org/sqlite"
)

// errDamaged reports inconsistent content of a base.
var errDamaged = errors.New("the knowledge base is damaged")

// Codes of SQLite (sqlite.org/rescode.html); the low byte is the primary code.
const (
	sqliteError     = 1
	sqliteCorrupt   = 11
	sqliteFormat    = 24
	sqliteNotADB    = 26
	sqliteShortRead = 522
)

// isDamaged reports whether an error means that the content of the file is damaged.
func isDamaged(err error) bool {
	if errors.Is(err, errDamaged) || errors.Is(err, errSchema) {
		return true
	}
	var s *sqlite.Error
	if !errors.As(err, &s) {
		// a column has another type than the schema says; database/sql has no error value for that
		return err != nil && strings.Contains(err.Error(), "sql: Scan error")
	}
	switch s.Code() & 0xff {
	case sqliteCorrupt, sqliteFormat, sqliteNotADB:
		return true
	}
	return s.Code() == sqliteShortRead
}

// asDamage marks an error as damage that cannot occur in a sound database: a missing table or row.
func asDamage(err error) error {
	var s *sqlite.Error
	if errors.Is(err, sql.ErrNoRows) || errors.As(err, &s) && s.Code()&0xff == sqliteError {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return err
}
