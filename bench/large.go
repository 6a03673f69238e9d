package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"corral/internal/test/logtest"
	"corral/store/index"
)

// Sizes of the large knowledge base.
const (
	largeLines = 10_000_000
	largeRun   = 100_000 // lines of one run
	rareNames  = 1000
	rareEvery  = 1000 // one line in this many has a rare name
)

// large prints how long searches in a large knowledge base take.
func (b *indexBench) large() error {
	return b.with(func() error {
		start := time.Now()
		var sections int
		for run := range largeLines / largeRun {
			a, err := b.x.Add(b.ctx, benchBase, index.Source{Label: "execute:shell"}, largeLog(run))
			if err != nil {
				return err
			}
			sections += a.Sections
			if run%10 == 9 {
				fmt.Fprintf(os.Stderr, "bench: %d lines after %v\n", (run+1)*largeRun, time.Since(start).Round(time.Second))
			}
		}
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "SEARCHED IN %d LINES, %d SECTIONS\tQUERIES\tMEDIAN ms\tP95 ms\tFOUND\tCUT\n", largeLines, sections)
		for _, c := range []struct {
			name  string
			query func(int) string
		}{
			{"one rare word", func(i int) string { return rareName(i * 7) }},
			{"one rare word and common ones", func(i int) string { return rareName(i*11) + " ledger-db finished" }},
			{"with a typo", func(i int) string { return logtest.Typo(rareName(i*13), uint64(i)) }},
			{"one common word", func(int) string { return "finished" }},
			{"three common words", func(int) string { return "ledger nightly snapshot" }},
			{"no such word", func(i int) string { return fmt.Sprintf("zzyzx%dq", i) }},
		} {
			if err := b.queries(w, c.name, c.query); err != nil {
				return err
			}
		}
		return w.Flush()
	})
}

// rareName returns one of rareNames words, each of which occurs in a few chunks of the large knowledge base.
func rareName(i int) string {
	const consonants, vowels = "bdfgklmnprstvz", "aeiou"
	var name []byte
	for n := i%rareNames + 7*rareNames; n > 0; n /= len(consonants) * len(vowels) {
		name = append(name, consonants[n%len(consonants)], vowels[n/len(consonants)%len(vowels)])
	}
	return "incident" + string(name)
}

// largeLog returns the log of one run.
func largeLog(run int) io.Reader {
	lines := &lineReader{r: logtest.Noise("journal", uint64(run)), n: largeRun, run: run}
	return lines
}

// A lineReader reads the first n lines of r, and adds rare names to some.
type lineReader struct {
	r      io.Reader
	n, run int
	seen   int
	rest   []byte
	buf    [64 << 10]byte
}

func (l *lineReader) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.seen == l.n {
			return 0, io.EOF
		}
		n, err := l.r.Read(l.buf[:])
		if err != nil {
			return 0, err
		}
		for _, line := range bytes.SplitAfter(l.buf[:n], []byte{'\n'}) {
			l.rest = append(l.rest, line...)
			if len(line) == 0 || line[len(line)-1] != '\n' {
				continue
			}
			if l.seen++; l.seen%rareEvery == 0 {
				l.rest = append(l.rest[:len(l.rest)-1], (" " + rareName(l.run*31+l.seen/rareEvery) + "\n")...)
			}
			if l.seen == l.n {
				break
			}
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// queries runs searches and prints a row about them.
func (b *indexBench) queries(w io.Writer, name string, query func(int) string) error {
	const rounds = 50
	var times []float64
	found, cut := 0, 0
	for i := range rounds {
		start := time.Now()
		f, err := b.x.Search(b.ctx, benchBase, index.Query{Text: query(i)})
		if err != nil {
			return err
		}
		times = append(times, ms(time.Since(start)))
		if len(f.Hits) > 0 {
			found++
		}
		if f.Cut {
			cut++
		}
	}
	_, err := fmt.Fprintf(w, "%s\t%d\t%.1f\t%.1f\t%d\t%d\n", name, rounds, quantile(times, 0.5), quantile(times, 0.95), found, cut)
	return err
}
