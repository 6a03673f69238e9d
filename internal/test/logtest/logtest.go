// Package logtest generates logs to search in: kinds of different shapes in the style of real programs, with planted lines that a
// person would search for. It also has ten logs that real programs wrote about planted mistakes.
//
// A planted line contains a component, a trouble and a subject. Each of these, and each pair of them, also occurs in other
// lines, hundreds of times in a long log; all three together occur nowhere else. So a search that only ranks rare words
// high finds nothing here.
//
// The same seed gives the same log on any machine.
package logtest

import (
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"strings"
)

// A Log is a generated log.
type Log struct {
	Text    []byte
	Planted []Planted
}

// A Planted is a line that searches must find.
type Planted struct {
	Line   string // without newline
	Number int64  // line number, from 1
	Query  string // words of the line
	Intent string // the query as a person words the purpose of a run
}

// Kinds returns the names of the kinds of logs.
func Kinds() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// Make generates a log of a kind with about the given number of bytes and with planted lines, at most MaxPlanted. It panics
// for an unknown kind.
func Make(kind string, seed uint64, bytes, planted int) *Log {
	m := newMaker(kind, seed)
	m.plan(planted)
	l := &Log{}
	var text strings.Builder
	lines := int64(0)
	write := func(s string) {
		text.WriteString(s)
		lines += int64(strings.Count(s, "\n"))
	}
	write(m.kind.head)
	for i, t := range m.planted {
		for text.Len() < (2*i+1)*bytes/(2*planted) {
			write(m.noise())
		}
		block, line, words := m.kind.trouble(m, t)
		at := strings.Index(block, line)
		l.Planted = append(l.Planted, Planted{
			Line: line, Number: lines + int64(strings.Count(block[:at], "\n")) + 1, Query: words, Intent: intent(i, words),
		})
		write(block)
	}
	for text.Len() < bytes {
		write(m.noise())
	}
	l.Text = []byte(text.String())
	return l
}

// intent puts every other query into a sentence.
func intent(i int, words string) string {
	switch i % 4 {
	case 1:
		return "find the error: " + words
	case 3:
		return "why did it fail? " + words
	}
	return words
}

// Noise returns an endless log without planted lines. It contains no line that Make plants with any seed.
func Noise(kind string, seed uint64) io.Reader {
	m := newMaker(kind, seed)
	return &reader{m: m, rest: m.kind.head}
}

type reader struct {
	m    *maker
	rest string
}

func (r *reader) Read(p []byte) (int, error) {
	for len(r.rest) < len(p) && len(r.rest) < 64<<10 {
		r.rest += r.m.noise()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Typo returns a query with a mistake in its longest word: a letter is missing, doubled or wrong, or two are swapped. The
// first letter is correct.
func Typo(query string, seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 3))
	words := strings.Fields(query)
	longest := 0
	for i, w := range words {
		if len(w) > len(words[longest]) {
			longest = i
		}
	}
	w := []byte(words[longest])
	i := 1
	for range 100 {
		i = 1 + r.IntN(len(w)-2)
		if letter(w[i]) && letter(w[i+1]) && w[i] != w[i+1] {
			break
		}
	}
	switch r.IntN(4) {
	case 0:
		w = append(w[:i], w[i+1:]...)
	case 1:
		w = append(w[:i+1], w[i:]...)
	case 2:
		w[i] = 'a' + (w[i]-'a'+7)%26
	default:
		w[i], w[i+1] = w[i+1], w[i]
	}
	words[longest] = string(w)
	return strings.Join(words, " ")
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' }

// A thing is the topic of a line.
type thing struct {
	component string // ledger-db
	trouble   string // checksum mismatch
	subject   string // nightly snapshot
}

func newMaker(name string, seed uint64) *maker {
	for i := range kinds {
		if kinds[i].name == name {
			h := fnv.New64a()
			_, _ = h.Write([]byte(name))
			return &maker{kind: &kinds[i], r: rand.New(rand.NewPCG(seed, h.Sum64()))}
		}
	}
	panic(fmt.Sprintf("logtest: unknown kind %q", name))
}

// A maker generates one log.
type maker struct {
	kind    *kind
	r       *rand.Rand
	planted []thing
	n       int // number of blocks generated
}

// noise returns the next lines. One block of eight is about a trouble that is planted nowhere.
func (m *maker) noise() string {
	m.n++
	if m.r.IntN(8) > 0 {
		return m.kind.usual(m, m.any())
	}
	t := m.any()
	for reserved(t) {
		t = m.any()
	}
	block, _, _ := m.kind.trouble(m, t)
	return block
}

func (m *maker) any() thing {
	return thing{pick(m, components), pick(m, troubles), pick(m, subjects)}
}

func pick(m *maker, of []string) string { return of[m.r.IntN(len(of))] }

// MaxPlanted is the maximum number of planted lines in one log.
const MaxPlanted = 96

// plan chooses the things to plant.
func (m *maker) plan(n int) {
	if n > MaxPlanted {
		panic(fmt.Sprintf("logtest: %d lines are too many", n))
	}
	seen := map[thing]bool{}
	for len(m.planted) < n {
		t := m.any()
		if reserved(t) && !seen[t] {
			seen[t] = true
			m.planted = append(m.planted, t)
		}
	}
}

// reserved reports whether a thing may be planted and so never occurs in noise. One of sixteen may.
func reserved(t thing) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.component + t.trouble + t.subject))
	return h.Sum32()%16 == 0
}

var components = []string{
	"payment-gateway", "ledger-db", "order-service", "auth-proxy", "session-cache", "inventory-sync", "search-indexer", "mail-worker",
	"image-resizer", "billing-api", "job-scheduler", "report-builder", "user-profile", "geo-lookup", "fraud-detector", "tax-engine",
	"coupon-store", "event-router", "audit-trail", "media-encoder", "feature-flags", "rate-limiter", "catalog-import", "push-notifier",
}

var troubles = []string{
	"connection refused", "request timed out", "permission denied", "checksum mismatch", "certificate expired", "memory exhausted",
	"disk full", "deadlock detected", "segmentation fault", "schema conflict", "quota exceeded", "broken pipe", "invalid signature",
	"address in use", "stale lock", "unexpected token",
}

var subjects = []string{
	"settlement batch", "refund webhook", "nightly snapshot", "thumbnail queue", "price table", "shard map", "login token", "delivery route",
	"invoice archive", "stock level", "search facet", "mail template", "retry budget", "leader election", "customer export", "video segment",
	"discount rule", "tenant config", "backup volume", "metrics scrape",
}
