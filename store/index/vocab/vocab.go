// Package vocab collects the words of the sources in a knowledge base, for corrections of queries.
package vocab

import (
	"context"
	"database/sql"
	"slices"
	"unicode/utf8"

	"corral/store/index/db"
	"corral/store/index/word"
)

// A Vocabulary collects the words of a source, each with its stem. It keeps only words of letters: numbers are rarely
// mistyped, and each line of a log contains a new one.
type Vocabulary struct{ stems map[string]string }

const (
	// maxWords is the maximum number of words kept per source.
	maxWords = 1 << 16
	// maxKnown is the approximate maximum number of words kept per base.
	maxKnown = 1 << 19
	// MinLearn is the minimum number of letters of a word that is kept.
	MinLearn = 3
	maxLearn = 40 // bytes
)

// Stem appends the stem of a folded word to dst, and keeps the word.
func (v *Vocabulary) Stem(dst, w []byte) []byte {
	if s, ok := v.stems[string(w)]; ok {
		return append(dst, s...)
	}
	n := len(dst)
	dst = word.Stem(dst, w)
	if len(v.stems) < maxWords && Learnable(w) {
		if v.stems == nil {
			v.stems = map[string]string{}
		}
		v.stems[string(w)] = string(dst[n:])
	}
	return dst
}

// Learnable reports whether a word is one to keep: of 3 letters to 40 bytes, without digits.
func Learnable(w []byte) bool {
	if len(w) < MinLearn || len(w) > maxLearn {
		return false
	}
	for _, b := range w {
		if b <= '9' {
			return false
		}
	}
	return w[0] < utf8.RuneSelf || utf8.RuneCount(w) >= MinLearn
}

// learnAtOnce is the maximum number of words per transaction.
const learnAtOnce = 4096

// seenSlack is by how many sources words.seen may lag behind: it is not updated for each source.
const seenSlack = 16

// Learn adds the words of a source to the base.
func (v *Vocabulary) Learn(ctx context.Context, b *db.Base, source int64) error {
	all := make([]string, 0, len(v.stems))
	for w := range v.stems {
		all = append(all, w)
	}
	slices.Sort(all) // so that pages are written sequentially
	room, err := wordRoom(ctx, b)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(all, learnAtOnce) {
		if err := b.Transact(ctx, func(tx *sql.Tx) error { return learnWords(tx, part, source, &room) }); err != nil {
			return err
		}
	}
	return nil
}

// wordRoom returns how many more words the base may learn.
func wordRoom(ctx context.Context, b *db.Base) (int, error) {
	var n int
	err := b.Read.QueryRowContext(ctx, "SELECT coalesce(max(id), 0) FROM words").Scan(&n)
	if err == nil && n >= maxKnown { // some may have been removed
		err = b.Read.QueryRowContext(ctx, "SELECT count(*) FROM words").Scan(&n)
	}
	return maxKnown - n, err
}

func learnWords(tx *sql.Tx, words []string, source int64, room *int) error {
	add, err := tx.Prepare("INSERT INTO words(word, seen) VALUES(?, ?) ON CONFLICT DO NOTHING")
	if err != nil {
		return err
	}
	see, err := tx.Prepare("UPDATE words SET seen = ?2 WHERE word = ?1 AND seen < ?2 - ?3")
	if err != nil {
		return err
	}
	gram, err := tx.Prepare("INSERT INTO grams(rowid, word) VALUES(?, ?)")
	if err != nil {
		return err
	}
	for _, w := range words { // the statements are closed with the transaction
		id, err := newWord(add, w, source, *room)
		switch {
		case err != nil:
			return err
		case id == 0:
			_, err = see.Exec(w, source, seenSlack)
		default:
			*room--
			_, err = gram.Exec(id, Padded(w))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// newWord adds a word and returns its id, or 0 if it is known or there is no room.
func newWord(add *sql.Stmt, w string, source int64, room int) (int64, error) {
	if room <= 0 {
		return 0, nil
	}
	res, err := add.Exec(w, source)
	if err != nil {
		return 0, err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return 0, err
	}
	return res.LastInsertId()
}

// Padded makes the first and last letters of a word trigrams of their own, so that words with the same start or end share
// these even with a typo nearby.
func Padded(w string) string { return "^^" + w + "$$" }
