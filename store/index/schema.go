package index

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"modernc.org/sqlite"
)

// schemaVersion is the version of the following schema. A base of another version is recreated.
const schemaVersion = 3

// schema creates the tables. sources.cost is what a source counts against the quota. sources.label is "" if the name is
// fixed. The row of a label is deleted with its last source; totals.top is the highest number of a deleted label, so that
// no name is ever reused. found.parts has parts of words that FTS5 does not split. A new word gets its trigrams by a trigger; the
// marks around it make its first and last letters trigrams of their own, so that words with the same start or end share
// these even with a typo nearby.
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
CREATE VIRTUAL TABLE found USING fts5(title, content, parts, class UNINDEXED, first UNINDEXED, last UNINDEXED, sum UNINDEXED,
	tokenize='porter unicode61 remove_diacritics 2');
INSERT INTO found(found, rank) VALUES('hashsize', 4194304);
CREATE TABLE words(id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE, seen INTEGER NOT NULL);
CREATE VIRTUAL TABLE grams USING fts5(word, content='', contentless_delete=1, detail=none, tokenize='trigram');
CREATE TRIGGER words_more AFTER INSERT ON words BEGIN
	INSERT INTO grams(rowid, word) VALUES(new.id, '^^' || new.word || '$$');
END;
CREATE TRIGGER words_less AFTER DELETE ON words BEGIN
	DELETE FROM grams WHERE rowid = old.id;
END;
`

// connect returns a pool of at most maxConns connections to a database in dir; none is open yet. They use little memory,
// and nothing in the file can make them execute code.
func connect(dir int, name string, maxConns int, pragmas string) (*sql.DB, error) {
	// SQLite opens the file by this path whenever it connects, so dir has to stay open.
	c, err := sqlite.NewConnector(fmt.Sprintf("file:/proc/self/fd/%d/%s?mode=rw&_defensive=1&_dqs=0"+
		"&_pragma=busy_timeout(10000)&_pragma=trusted_schema(0)&_pragma=cell_size_check(1)&_pragma=mmap_size(0)"+
		"&_pragma=synchronous(normal)&_pragma=temp_store(memory)%s", dir, name, pragmas))
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	return db, nil
}

const (
	writerPragmas = "&_txlock=immediate&_pragma=cache_size(-4096)&_pragma=journal_size_limit(8388608)"
	readerPragmas = "&_pragma=query_only(1)&_pragma=cache_size(-2048)"
	readers       = 2
)

var errSchema = errors.New("unsupported schema version")

// fill initializes an empty database file.
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

// probe checks the version, and reads from each table, to detect a damaged schema.
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
		"SELECT title, content, parts, class, first, last, sum FROM found LIMIT 1",
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
