package index

import (
	"context"
	"database/sql"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// A vocabulary collects the words of a source, for corrections of queries. It keeps only words of letters: numbers are rarely
// mistyped, and each line of a log contains a new one.
//
// FTS5's own vocabulary (fts5vocab) cannot replace it: it has stems, and reads the whole index for a list of words.
type vocabulary map[string]struct{}

const (
	// maxWords is the maximum number of words kept per source.
	maxWords = 1 << 16
	// maxKnown is the approximate maximum number of words kept per base.
	maxKnown = 1 << 19
	// minLearn is the minimum number of letters of a word that is kept.
	minLearn = 3
	maxLearn = 40 // bytes
	// learnAtOnce is the maximum number of words per transaction.
	learnAtOnce = 4096
	// seenSlack is by how many sources words.seen may lag behind: it is not updated for each source.
	seenSlack = 16
)

// add adds a word.
func (v vocabulary) add(word string) {
	if len(v) >= maxWords || !learnable(word) {
		return
	}
	if _, ok := v[word]; ok { // most words of a log: needs no allocation
		return
	}
	if w := strings.ToLower(word); learnable(w) {
		v[strings.Clone(w)] = struct{}{}
	}
}

// learnable reports whether a word is one to keep: of 3 letters to 40 bytes, without digits.
func learnable(w string) bool {
	if len(w) < minLearn || len(w) > maxLearn {
		return false
	}
	for i := range len(w) {
		if w[i] <= '9' {
			return false
		}
	}
	return w[0] < utf8.RuneSelf || utf8.RuneCountInString(w) >= minLearn
}

// learn adds the words of a source to the base.
func (v vocabulary) learn(ctx context.Context, b *database, source int64) error {
	var known int
	err := b.Read.QueryRowContext(ctx, "SELECT coalesce(max(id), 0) FROM words").Scan(&known)
	if err == nil && known >= maxKnown { // some may have been removed
		err = b.Read.QueryRowContext(ctx, "SELECT count(*) FROM words").Scan(&known)
	}
	if err != nil || known >= maxKnown {
		return err
	}
	all := make([]string, 0, len(v))
	for w := range v {
		all = append(all, w)
	}
	slices.Sort(all) // so that pages are written sequentially
	for part := range slices.Chunk(all, learnAtOnce) {
		list, err := json.Marshal(part)
		if err != nil {
			return err
		}
		err = b.Transact(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO words(word, seen) SELECT value, ?2 FROM json_each(?1) WHERE true
				ON CONFLICT(word) DO UPDATE SET seen = ?2 WHERE seen < ?2 - ?3`, string(list), source, seenSlack)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// forget removes words that are in no source any more. It does so only when half of the sources have been removed since the last
// time.
func forget(ctx context.Context, b *database) error {
	var sources, gone, first int64
	err := b.Read.QueryRowContext(ctx, "SELECT sources, gone, (SELECT coalesce(min(id), ?) FROM sources) FROM totals",
		int64(math.MaxInt64)).Scan(&sources, &gone, &first)
	if err != nil || gone <= max(sources, seenSlack) && sources > 0 {
		return err
	}
	for removed := int64(removedAtOnce); removed == removedAtOnce; {
		err := b.Transact(ctx, func(tx *sql.Tx) error {
			res, err := tx.ExecContext(ctx, "DELETE FROM words WHERE id IN (SELECT id FROM words WHERE seen < ? LIMIT ?)",
				first-seenSlack, removedAtOnce)
			if err != nil {
				return err
			}
			if removed, err = res.RowsAffected(); err != nil || removed == removedAtOnce {
				return err
			}
			_, err = tx.ExecContext(ctx, "UPDATE totals SET gone = 0")
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
