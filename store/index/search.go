package index

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	defaultLimit = 3
	maxLimit     = 100
	// maxMatches is the maximum number of chunks examined for a word, the newest first. A word in more chunks is common.
	maxMatches = 4000
	// maxScored is the maximum number of rows that FTS5 scores: for each, BM25 visits all chunks that contain a word.
	maxScored = 2 * maxMatches
	// maxScanned is the maximum number of rows examined to find those of certain sources or of a class.
	maxScanned = 5 * maxMatches
	// maxRead is the maximum number of chunks that are read to rank lines, the first of the lists.
	maxRead = 64
	// maxChosen is the maximum number of sources that a query can select, the newest first.
	maxChosen = 1 << 14
)

// runQuery runs a query in a transaction that reads. Sources made before horizon, in Unix nanoseconds, are not found. No query
// text is invalid. Of chunks with the same text, only the newest is a hit.
func runQuery(ctx context.Context, tx *sql.Tx, horizon int64, q Query) (*Found, error) {
	if q.Limit <= 0 {
		q.Limit = defaultLimit
	}
	q.Limit = min(q.Limit, maxLimit)
	s := &search{ctx: ctx, tx: tx, query: q, found: &Found{}, horizon: horizon}
	if err := s.run(); err != nil {
		return nil, err
	}
	return s.found, nil
}

// A search is the state of one query.
type search struct {
	ctx     context.Context
	tx      *sql.Tx
	query   Query
	found   *Found
	horizon int64

	groups  []*group
	phrases []string       // FTS5 expressions
	total   int64          // chunks in the base
	low     int64          // minimum row
	high    int64          // maximum row
	hidden  map[int64]bool // sources that must not be found
	chosen  map[int64]bool // sources to search; nil means all
	sources map[int64]*Hit // looked-up sources; nil for one that must not be found

	oneList  bool              // all rows with any word are candidates
	meanings map[string][]mark // by word of a text
	gathered int               // words examined for corrections, at most
}

func (s *search) run() error {
	isEmpty, err := s.choose()
	if err != nil || isEmpty {
		s.found.Empty = isEmpty
		return err
	}
	s.groups, s.phrases = parseQuery(s.query.Text)
	if len(s.groups) == 0 || s.low > s.high {
		return nil
	}
	if err := s.count(); err != nil || len(s.groups) == 0 {
		return err
	}
	rows, err := s.candidates()
	if err != nil {
		return err
	}
	return s.rank(rows)
}

// choose determines the sources to search.
func (s *search) choose() (isEmpty bool, err error) {
	var first sql.NullInt64
	err = s.tx.QueryRowContext(s.ctx, "SELECT sections, (SELECT id FROM sources WHERE state = ? AND made >= ? ORDER BY id LIMIT 1) FROM totals",
		stateReady, s.horizon).Scan(&s.total, &first)
	if err != nil || !first.Valid {
		return err == nil, err
	}
	s.low, s.high = rowOf(first.Int64, 0, false), math.MaxInt64
	hidden, err := column[int64](s.ctx, s.tx, "SELECT id FROM sources WHERE state <> 1")
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

// filter selects the sources that satisfy the query.
func (s *search) filter() error {
	where, args := "state = ?", []any{stateReady}
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
	ids, err := column[int64](s.ctx, s.tx, "SELECT id FROM sources WHERE "+where+" ORDER BY id DESC LIMIT ?", append(args, maxChosen+1)...)
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

// accepts reports whether a row satisfies the query's filters.
func (s *search) accepts(row int64) bool {
	source := sourceOf(row)
	if s.hidden[source] || s.chosen != nil && !s.chosen[source] {
		return false
	}
	return s.query.Class == "" || isCode(row) == (s.query.Class == Code)
}

// count counts the chunks that contain each word, and corrects words that no chunk contains. It sorts words by rarity.
func (s *search) count() error {
	for _, g := range s.groups {
		var err error
		if g.count, err = s.countMatch(g.match()); err != nil {
			return err
		}
	}
	if err := s.correct(); err != nil {
		return err
	}
	s.groups = slices.DeleteFunc(s.groups, func(g *group) bool {
		g.common = g.count > maxMatches
		return g.count == 0
	})
	slices.SortStableFunc(s.groups, func(a, b *group) int { return cmp.Compare(a.count, b.count) })
	return nil
}

func (s *search) countMatch(match string) (n int, err error) {
	err = s.tx.QueryRowContext(s.ctx, "SELECT count(*) FROM (SELECT 1 FROM found WHERE found MATCH ? LIMIT ?)",
		match, maxMatches+1).Scan(&n)
	return n, err
}

// candidates returns rows that match, the best first: those with the phrases of the query, with its words near each other, with all
// words, with any word. If there are so few rows with any word that all are read, their texts give the same information.
func (s *search) candidates() ([]int64, error) {
	some, sum := s.affordable(s.groups)
	anyWord, err := s.rows(matchGroups(some, " OR "), s.low, sum <= maxScored)
	if err != nil {
		return nil, err
	}
	s.found.Cut = s.found.Cut || len(some) < len(s.groups) || s.groups[0].common
	s.found.Matched = len(anyWord)
	if len(s.groups) == 1 || len(anyWord) <= maxRead {
		s.oneList = len(s.groups) > 1
		return s.newestFirst(anyWord), nil
	}
	low, err := s.lowestRow(s.groups[0])
	if err != nil {
		return nil, err
	}
	var lists [][]int64
	for _, match := range append(slices.Clone(s.phrases), matchNear(s.groups), matchGroups(s.groups, " AND ")) {
		l, err := s.rows(match, low, len(some) == len(s.groups))
		if err != nil {
			return nil, err
		}
		lists = append(lists, l)
	}
	all := lists[len(lists)-1]
	s.matched(len(all))
	if s.query.Newest && len(all) > 0 {
		return s.newestFirst(all), nil
	}
	return s.newestFirst(slices.Concat(append(lists, anyWord)...)), nil
}

// newestFirst sorts rows by their source if the query says so.
func (s *search) newestFirst(rows []int64) []int64 {
	if s.query.Newest {
		slices.SortFunc(rows, func(a, b int64) int {
			return cmp.Or(cmp.Compare(sourceOf(b), sourceOf(a)), cmp.Compare(a, b))
		})
	}
	return rows
}

// matched sets Found.Matched. all is the number of chunks that contain all words.
func (s *search) matched(all int) {
	if all >= s.query.Limit || all > s.found.Matched {
		s.found.Matched = all
	}
}

// affordable returns the rarest words such that all chunks that contain one can be scored, but at least one word.
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

// lowestRow returns the lowest row to examine for chunks that contain the rarest word and others, so that few rows are
// above it.
func (s *search) lowestRow(rarest *group) (int64, error) {
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

// rows returns the newest rows that match and are accepted, sorted by BM25 if score is set. An empty match yields none.
func (s *search) rows(match string, low int64, score bool) ([]int64, error) {
	if match == "" {
		return nil, nil
	}
	column := "0.0"
	if score {
		column = "bm25(found, 5.0, 1.0, 1.0)" // titles weigh five times as much
	}
	rows, err := s.tx.QueryContext(s.ctx, "SELECT rowid, "+column+` FROM found WHERE found MATCH ? AND rowid BETWEEN ? AND ?
		ORDER BY rowid DESC`, match, low, s.high)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all []int64
	scores := map[int64]float64{}
	for n := 0; rows.Next(); n++ {
		if n == maxScanned || len(all) == maxMatches {
			s.found.Cut = true
			break
		}
		var row int64
		var bm25 float64
		if err := rows.Scan(&row, &bm25); err != nil {
			return nil, err
		}
		if s.accepts(row) {
			all = append(all, row)
			scores[row] = bm25
		}
	}
	if score { // lower is better
		slices.SortStableFunc(all, func(a, b int64) int { return cmp.Compare(scores[a], scores[b]) })
	}
	return all, rows.Err()
}

// source returns the metadata of a source, or nil if it must not be found.
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
	if errors.Is(err, sql.ErrNoRows) || err == nil && (state != stateReady || made < s.horizon) {
		h, err = nil, nil
	}
	if h != nil {
		h.Time = time.Unix(0, made)
	}
	s.sources[id] = h
	return h, err
}
