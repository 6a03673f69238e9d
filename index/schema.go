package index

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"modernc.org/sqlite"
)

// schemaVersion is of what follows. A base of another version is begun anew.
const schemaVersion = 2

// A source's state.
const (
	stateAdding = iota // all of it is not there yet
	stateThere
	stateGoing // its chunks are being removed
)

// A chunk's row says of which source it is, the how manieth, and whether it is code: so that what is found can be chosen
// from without another look-up, and a newer source's rows are larger.
const (
	rowBits   = 24
	maxChunks = 1 << (rowBits - 1) // of a source
)

func rowOf(source, n int64, code bool) int64 {
	row := source<<rowBits | n<<1
	if code {
		row |= 1
	}
	return row
}

func sourceOf(row int64) int64 { return row >> rowBits }

func isCode(row int64) bool { return row&1 == 1 }

// schema makes the tables. A source's cost is what it counts for in the quota. Its label is "" if its name is fixed; a
// label goes with its last source, and totals.top is the highest number that one had that went: no name comes again.
// What is indexed is words that are cut and stemmed already (package word), with spaces between them: FTS5 is to take
// them as they are, which its tokenizer ascii does, and needs no text, which is in chunks.
const schema = `
CREATE TABLE sources(
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	name TEXT NOT NULL, label TEXT NOT NULL, artifact TEXT NOT NULL, stream TEXT NOT NULL,
	made INTEGER NOT NULL, state INTEGER NOT NULL,
	sections INTEGER NOT NULL DEFAULT 0, lines INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0,
	cost INTEGER NOT NULL);
CREATE INDEX sources_label ON sources(label) WHERE label <> '';
CREATE INDEX sources_name ON sources(name);
CREATE INDEX sources_artifact ON sources(artifact) WHERE artifact <> '';
CREATE INDEX sources_hidden ON sources(state) WHERE state <> 1;
CREATE INDEX sources_made ON sources(made);
CREATE TABLE labels(label TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE totals(sources INTEGER NOT NULL, sections INTEGER NOT NULL, cost INTEGER NOT NULL, gone INTEGER NOT NULL,
	top INTEGER NOT NULL);
INSERT INTO totals VALUES(0, 0, 0, 0, 0);
CREATE TRIGGER sources_more AFTER INSERT ON sources BEGIN
	UPDATE totals SET sources = sources + 1, sections = sections + new.sections, cost = cost + new.cost;
END;
CREATE TRIGGER sources_change AFTER UPDATE OF sections, cost ON sources BEGIN
	UPDATE totals SET sections = sections + new.sections - old.sections, cost = cost + new.cost - old.cost;
END;
CREATE TRIGGER sources_less AFTER DELETE ON sources BEGIN
	UPDATE totals SET sources = sources - 1, sections = sections - old.sections, cost = cost - old.cost, gone = gone + 1;
	UPDATE totals SET top = max(top, (SELECT coalesce(max(n), 0) FROM labels WHERE label = old.label))
		WHERE NOT EXISTS(SELECT 1 FROM sources WHERE label = old.label AND label <> '');
	DELETE FROM labels WHERE label = old.label AND NOT EXISTS(SELECT 1 FROM sources WHERE label = old.label AND label <> '');
END;
CREATE TABLE chunks(id INTEGER PRIMARY KEY, title TEXT NOT NULL, class TEXT NOT NULL, first INTEGER NOT NULL,
	last INTEGER NOT NULL, sum INTEGER NOT NULL, text BLOB NOT NULL);
CREATE VIRTUAL TABLE found USING fts5(title, content, content='', contentless_delete=1, tokenize='ascii');
INSERT INTO found(found, rank) VALUES('hashsize', 4194304);
CREATE TABLE words(id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE, seen INTEGER NOT NULL);
CREATE VIRTUAL TABLE grams USING fts5(word, content='', contentless_delete=1, detail=none, tokenize='trigram');
`

// connect returns the connections to a database in dir, of which none is open yet: at most that many at once. They read
// and write as SQLite does, but with little memory, and nothing in the file has them run something.
func connect(dir int, name string, most int, pragmas string) (*sql.DB, error) {
	// SQLite resolves the link and opens the file by its path, each time: dir has to stay open.
	c, err := sqlite.NewConnector(fmt.Sprintf("file:/proc/self/fd/%d/%s?mode=rw&_defensive=1&_dqs=0"+
		"&_pragma=busy_timeout(10000)&_pragma=trusted_schema(0)&_pragma=cell_size_check(1)&_pragma=mmap_size(0)"+
		"&_pragma=synchronous(normal)&_pragma=temp_store(memory)%s", dir, name, pragmas))
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	return db, nil
}

const (
	writerPragmas = "&_txlock=immediate&_pragma=cache_size(-4096)&_pragma=journal_size_limit(8388608)"
	readerPragmas = "&_pragma=query_only(1)&_pragma=cache_size(-2048)"
	readers       = 2
)

var errSchema = errors.New("it is not of this version")

// fill makes an empty file a database.
func fill(ctx context.Context, db *sql.DB) error {
	for _, pragma := range []string{"page_size=4096", "auto_vacuum=incremental", "journal_mode=wal"} {
		if _, err := db.ExecContext(ctx, "PRAGMA "+pragma); err != nil {
			return err
		}
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, schema+fmt.Sprintf("PRAGMA user_version=%d", schemaVersion)); err != nil {
		return err
	}
	return tx.Commit()
}

// probe reads the version, and something of each table, so that a schema that was damaged shows.
func probe(ctx context.Context, db *sql.DB) error {
	var version int
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version != schemaVersion {
		return errSchema
	}
	for _, query := range []string{
		"SELECT id, name, label, artifact, stream, made, state, sections, lines, bytes, cost FROM sources LIMIT 1",
		"SELECT label, n FROM labels LIMIT 1",
		"SELECT id, title, class, first, last, sum, text FROM chunks LIMIT 1",
		"SELECT id, word, seen FROM words LIMIT 1",
		"SELECT rowid FROM found WHERE found MATCH 'a' LIMIT 1",
		"SELECT rowid FROM grams WHERE grams MATCH 'aaa' LIMIT 1",
	} {
		rows, err := db.QueryContext(ctx, query)
		if err != nil {
			return asDamage(err)
		}
		for rows.Next() {
		}
		err = errors.Join(rows.Err(), rows.Close())
		if err != nil {
			return asDamage(err)
		}
	}
	var n int
	return asDamage(db.QueryRowContext(ctx, "SELECT cost + top FROM totals").Scan(&n))
}

// asDamage makes an error that a sound database has no reason for one of damage: that a table is not there, or has no
// row.
func asDamage(err error) error {
	var s *sqlite.Error
	if errors.Is(err, sql.ErrNoRows) || errors.As(err, &s) && s.Code()&0xff == sqliteError {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return err
}

// checkFor is how long a database is checked whose last user was killed. SQLite needs no check after that; it is for what
// else there may have been. What it does not get to shows when it is read.
const checkFor = time.Second

// check looks for damage.
func check(ctx context.Context, db *sql.DB) error {
	short, cancel := context.WithTimeout(ctx, checkFor)
	defer cancel()
	var says string
	err := db.QueryRowContext(short, "PRAGMA quick_check(1)").Scan(&says)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case short.Err() != nil:
		return nil
	case err != nil:
		return err
	case says != "ok":
		return fmt.Errorf("%w: %s", errDamaged, says)
	}
	return nil
}

// errDamaged says that what a base has makes no sense.
var errDamaged = errors.New("the knowledge base is damaged")

// Codes of SQLite (sqlite.org/rescode.html): the last byte is of the kind.
const (
	sqliteError     = 1
	sqliteCorrupt   = 11
	sqliteFormat    = 24
	sqliteNotADB    = 26
	sqliteShortRead = 522
)

// damaged says whether an error is of the file's content.
func damaged(err error) bool {
	if errors.Is(err, errDamaged) || errors.Is(err, errSchema) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	var s *sqlite.Error
	if !errors.As(err, &s) {
		// A column has the type that the schema says; database/sql has no other mark of one that has not.
		return err != nil && strings.Contains(err.Error(), "sql: Scan error")
	}
	switch s.Code() & 0xff {
	case sqliteCorrupt, sqliteFormat, sqliteNotADB:
		return true
	}
	return s.Code() == sqliteShortRead
}
