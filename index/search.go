package index

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	defaultLimit = 3
	maxLimit     = 100
	// maxMatches is how many chunks are looked at for a word, the newest; a word that more have is common.
	maxMatches = 4000
	// maxScored is how many rows FTS5 gives a score: BM25 looks at all chunks that have a word, for each.
	maxScored = 2 * maxMatches
	// maxScanned is how many rows are looked at for those of some sources, or of a class.
	maxScanned = 5 * maxMatches
	// maxRead is how many chunks are decompressed, for lines and phrases. They are the best by then.
	maxRead = 64
	// maxChosen is how many sources are looked at that a query names, the newest.
	maxChosen = 1 << 14
)

// Search finds the chunks that fit a query best. No text of a query is an error. What is there to be found is what was
// added before Search was called; chunks that say the same, word for word, are one hit, the newest.
func (x *Index) Search(ctx context.Context, b Base, q Query) (*Found, error) {
	if q.Limit <= 0 {
		q.Limit = defaultLimit
	}
	q.Limit = min(q.Limit, maxLimit)
	found := &Found{Empty: true}
	err := x.look(ctx, b, func(_ *base, tx *sql.Tx) error {
		found = &Found{}
		s := &search{ctx: ctx, tx: tx, query: q, found: found, horizon: x.horizon()}
		return s.run()
	})
	if err != nil {
		return nil, fmt.Errorf("index: search: %w", err)
	}
	return found, nil
}

// A search is one query on its way.
type search struct {
	ctx     context.Context
	tx      *sql.Tx
	query   Query
	found   *Found
	horizon int64

	request request
	total   int64          // chunks of the base
	low     int64          // rows are of at least that
	high    int64          // and at most
	hidden  map[int64]bool // sources that are not found
	chosen  map[int64]bool // sources that are looked for; nil is all
	sources map[int64]*Hit // what is known of a source; nil is not to be found
	chunk   *sql.Stmt      // what reads a chunk; it ends with the transaction
	press   presser

	gathered int // words that were looked at for corrections
}

func (s *search) run() error {
	isEmpty, err := s.choose()
	if err != nil || isEmpty {
		s.found.Empty = isEmpty
		return err
	}
	s.request = parse(s.query.Text)
	if len(s.request.groups) == 0 || s.low > s.high {
		return nil
	}
	if err := s.count(); err != nil {
		return err
	}
	lists, err := s.candidates()
	if err != nil {
		return err
	}
	return s.rank(lists)
}

// choose finds the sources that are looked at.
func (s *search) choose() (isEmpty bool, err error) {
	var first sql.NullInt64
	err = s.tx.QueryRowContext(s.ctx, "SELECT sections, (SELECT id FROM sources WHERE state = ? AND made >= ? ORDER BY id LIMIT 1) FROM totals",
		stateThere, s.horizon).Scan(&s.total, &first)
	if err != nil || !first.Valid {
		return err == nil, err
	}
	s.low, s.high = rowOf(first.Int64, 0, false), math.MaxInt64
	hidden, err := numbers(s.ctx, s.tx, "SELECT id FROM sources WHERE state <> 1")
	if err != nil {
		return false, err
	}
	s.hidden = setOf(hidden)
	return false, s.filter()
}

func setOf(ids []int64) map[int64]bool {
	set := make(map[int64]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// filter finds the sources that the query wants.
func (s *search) filter() error {
	where, args := "state = ?", []any{stateThere}
	switch {
	case s.query.Exact:
		where, args = where+" AND name = ?", append(args, s.query.Source)
	case s.query.Source != "":
		where, args = where+" AND instr(name, ?) > 0", append(args, s.query.Source)
	}
	if s.query.Artifact != "" {
		where, args = where+" AND artifact = ? AND artifact <> ''", append(args, s.query.Artifact)
	}
	if len(s.query.Artifacts) > 0 {
		where += " AND artifact IN (?" + strings.Repeat(", ?", len(s.query.Artifacts)-1) + ")"
		for _, handle := range s.query.Artifacts {
			args = append(args, handle)
		}
	}
	if s.query.Stream != "" {
		where, args = where+" AND stream = ?", append(args, s.query.Stream)
	}
	if s.query.Class != "" && s.query.Class != Code && s.query.Class != Prose {
		s.high = s.low - 1
		return nil
	}
	if len(args) == 1 {
		return nil
	}
	ids, err := numbers(s.ctx, s.tx, "SELECT id FROM sources WHERE "+where+" ORDER BY id DESC LIMIT ?", append(args, maxChosen+1)...)
	if err != nil {
		return err
	}
	if len(ids) > maxChosen {
		ids, s.found.Cut = ids[:maxChosen], true
	}
	if len(ids) == 0 {
		s.high = s.low - 1
		return nil
	}
	s.chosen = setOf(ids)
	s.low = max(s.low, rowOf(slices.Min(ids), 0, false))
	s.high = rowOf(slices.Max(ids), maxChunks-1, true)
	return nil
}

// wanted says whether a row is of what the query wants.
func (s *search) wanted(row int64) bool {
	source := sourceOf(row)
	if s.hidden[source] || s.chosen != nil && !s.chosen[source] {
		return false
	}
	return s.query.Class == "" || isCode(row) == (s.query.Class == Code)
}

// count counts how many chunks have each word, and finds others for words that none has. The rarest come first then.
func (s *search) count() error {
	for _, g := range s.request.groups {
		var err error
		if g.count, err = s.countMatch(g.match()); err != nil {
			return err
		}
	}
	if err := s.correct(); err != nil {
		return err
	}
	s.request.groups = slices.DeleteFunc(s.request.groups, func(g *group) bool {
		g.common = g.count > maxMatches
		return g.count == 0
	})
	slices.SortStableFunc(s.request.groups, func(a, b *group) int { return cmp.Compare(a.count, b.count) })
	return nil
}

func (s *search) countMatch(match string) (n int, err error) {
	err = s.tx.QueryRowContext(s.ctx, "SELECT count(*) FROM (SELECT 1 FROM found WHERE found MATCH ? LIMIT ?)",
		match, maxMatches+1).Scan(&n)
	return n, err
}

// A list is rows that match, the best first if it is scored, else the newest.
type list struct {
	rows   []int64
	scored bool
	weight float64
}

// candidates finds rows in three ways: any word, words near each other, all words. If those with any word are so few that
// all are read, the texts tell the rest.
func (s *search) candidates() ([]list, error) {
	groups := s.request.groups
	if len(groups) == 0 {
		return nil, nil
	}
	some, sum := s.affordable(groups)
	anyWord, err := s.rows(matchGroups(some, " OR "), s.low, sum <= maxScored)
	if err != nil {
		return nil, err
	}
	lists := []list{anyWord}
	s.found.Cut = s.found.Cut || len(some) < len(groups) || groups[0].common
	s.found.Matched = len(anyWord.rows)
	if len(groups) == 1 || len(anyWord.rows) <= maxRead {
		return lists, nil
	}
	low, err := s.floor(groups[0])
	if err != nil {
		return nil, err
	}
	for _, match := range []string{matchNear(groups), matchGroups(groups, " AND ")} {
		l, err := s.rows(match, low, len(some) == len(groups))
		if err != nil {
			return nil, err
		}
		lists = append(lists, l)
	}
	s.matched(len(lists[2].rows))
	return lists, nil
}

// matched sets how many chunks match, of which all have all words.
func (s *search) matched(all int) {
	if all >= s.query.Limit || all > s.found.Matched {
		s.found.Matched = all
	}
}

// affordable returns the rarest words, such that all chunks that have one can be scored; one at least.
func (s *search) affordable(groups []*group) (some []*group, sum int) {
	for i, g := range groups {
		if i > 0 && sum+g.count > maxScored {
			return groups[:i], sum
		}
		sum += g.count
		if g.common {
			return groups[:max(i, 1)], max(sum, maxScored+1)
		}
	}
	return groups, sum
}

// floor is the lowest row to look at for chunks that have the rarest word and others: there are not many above it.
func (s *search) floor(rarest *group) (int64, error) {
	if !rarest.common {
		return s.low, nil
	}
	var low int64
	err := s.tx.QueryRowContext(s.ctx, `SELECT rowid FROM found WHERE found MATCH ? AND rowid BETWEEN ? AND ?
		ORDER BY rowid DESC LIMIT 1 OFFSET ?`, rarest.match(), s.low, s.high, maxMatches).Scan(&low)
	if errors.Is(err, sql.ErrNoRows) {
		return s.low, nil
	}
	return low, err
}

// rows returns the newest rows that match and are wanted, by BM25 if score. An empty match has none.
func (s *search) rows(match string, low int64, score bool) (list, error) {
	l := list{scored: score, weight: 1}
	if match == "" {
		return l, nil
	}
	column := "0.0"
	if score {
		column = "bm25(found, 5.0, 1.0)" // the title counts five times
	}
	rows, err := s.tx.QueryContext(s.ctx, "SELECT rowid, "+column+` FROM found WHERE found MATCH ? AND rowid BETWEEN ? AND ?
		ORDER BY rowid DESC`, match, low, s.high)
	if err != nil {
		return l, err
	}
	defer func() { _ = rows.Close() }()
	scores := map[int64]float64{}
	for n := 0; rows.Next(); n++ {
		if n == maxScanned || len(l.rows) == maxMatches {
			s.found.Cut = true
			break
		}
		var row int64
		var bm25 float64
		if err := rows.Scan(&row, &bm25); err != nil {
			return l, err
		}
		if s.wanted(row) {
			l.rows = append(l.rows, row)
			scores[row] = bm25
		}
	}
	if score { // less is better
		slices.SortStableFunc(l.rows, func(a, b int64) int { return cmp.Compare(scores[a], scores[b]) })
	}
	return l, rows.Err()
}

// source returns what is known of a source, nil if it is not to be found.
func (s *search) source(id int64) (*Hit, error) {
	if h, ok := s.sources[id]; ok {
		return h, nil
	}
	if s.sources == nil {
		s.sources = map[int64]*Hit{}
	}
	h := &Hit{}
	var made int64
	var state int
	err := s.tx.QueryRowContext(s.ctx, "SELECT name, made, state, artifact, stream FROM sources WHERE id = ?", id).
		Scan(&h.Source, &made, &state, &h.Artifact, &h.Stream)
	if errors.Is(err, sql.ErrNoRows) || err == nil && (state != stateThere || made < s.horizon) {
		h, err = nil, nil
	}
	if h != nil {
		h.Time = time.Unix(0, made)
	}
	s.sources[id] = h
	return h, err
}
