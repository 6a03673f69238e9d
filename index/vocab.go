package index

import (
	"context"
	"database/sql"
	"slices"
	"unicode/utf8"

	"corral/index/word"
)

// A vocabulary is the words of a source, each with its stem. Only those of letters are kept: numbers are not mistyped, and
// a log has a new one in each line.
type vocabulary struct{ stems map[string]string }

const (
	// maxWords is how many words of a source are kept.
	maxWords = 1 << 16
	// maxKnown is how many words of a base are kept, about.
	maxKnown = 1 << 19
	// A word that is kept has at least that many letters, and at most that many bytes.
	minLearn, maxLearn = 3, 40
)

// stem appends the stem of a folded word to dst, and keeps the word.
func (v *vocabulary) stem(dst, w []byte) []byte {
	if s, ok := v.stems[string(w)]; ok {
		return append(dst, s...)
	}
	n := len(dst)
	dst = word.Stem(dst, w)
	if len(v.stems) < maxWords && learnable(w) {
		if v.stems == nil {
			v.stems = map[string]string{}
		}
		v.stems[string(w)] = string(dst[n:])
	}
	return dst
}

func learnable(w []byte) bool {
	if len(w) < minLearn || len(w) > maxLearn {
		return false
	}
	for _, b := range w {
		if b <= '9' {
			return false
		}
	}
	return w[0] < utf8.RuneSelf || utf8.RuneCount(w) >= minLearn
}

// learnAtOnce is how many words a transaction writes at most.
const learnAtOnce = 4096

// seenSlack is by how many sources what is written of a word may lag behind: it is not written for each.
const seenSlack = 16

// learn brings the words of a source into the base, for corrections.
func (b *base) learn(ctx context.Context, v *vocabulary, source int64) error {
	all := make([]string, 0, len(v.stems))
	for w := range v.stems {
		all = append(all, w)
	}
	slices.Sort(all) // pages are written one after the other
	room, err := b.wordRoom(ctx)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(all, learnAtOnce) {
		if err := b.transact(ctx, func(tx *sql.Tx) error { return learnWords(tx, part, source, &room) }); err != nil {
			return err
		}
	}
	return nil
}

// wordRoom returns how many words the base may still learn.
func (b *base) wordRoom(ctx context.Context) (int, error) {
	var n int
	err := b.read.QueryRowContext(ctx, "SELECT coalesce(max(id), 0) FROM words").Scan(&n)
	if err == nil && n >= maxKnown { // some have gone since, perhaps
		err = b.read.QueryRowContext(ctx, "SELECT count(*) FROM words").Scan(&n)
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
	for _, w := range words { // the statements end with the transaction
		id, err := newWord(add, w, source, *room)
		switch {
		case err != nil:
			return err
		case id == 0:
			_, err = see.Exec(w, source, seenSlack)
		default:
			*room--
			_, err = gram.Exec(id, padded(w))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// newWord adds a word, and returns its id; 0 if the base has it, or has no room.
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

// padded has the first and last letters of a word be trigrams of their own: what begins or ends alike shares these, though
// it has a letter wrong near there.
func padded(w string) string { return "^^" + w + "$$" }
