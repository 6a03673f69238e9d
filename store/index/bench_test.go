package index

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// logText returns about size bytes of a log, with four levels, 300 modules, unique ids, and messages of common words.
func logText(seed uint64, size int) []byte {
	r := rand.New(rand.NewPCG(seed, 7))
	words := strings.Fields(`connection refused timeout while reading response header from upstream client server request
		handled successfully cache miss hit retry scheduled worker pool exhausted allocating buffer segment flush commit
		transaction rollback index scan table lock acquired released user session token expired invalid login attempt
		accepted queue depth latency threshold exceeded warning deprecated function call stack frame pointer dereference
		panic recovered goroutine blocked channel closed unexpected end of file`)
	levels := [...]string{"INFO", "DEBUG", "WARN", "ERROR"}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var b bytes.Buffer
	for b.Len() < size {
		at = at.Add(time.Duration(r.IntN(50)) * time.Millisecond)
		fmt.Fprintf(&b, "%s %s [module_%d] req=%08x ", at.Format("2006-01-02T15:04:05.000Z"), levels[r.IntN(4)], r.IntN(300),
			r.Uint32())
		for range 3 + r.IntN(8) {
			b.WriteString(words[r.IntN(len(words))])
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "took=%dms\n", r.IntN(1000))
	}
	return b.Bytes()
}

func BenchmarkAdd16MB(b *testing.B) {
	text := logText(1, 16<<20)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		x := openIndex(b, Options{})
		if _, err := x.Add(b.Context(), testBase, Source{Label: "log"}, bytes.NewReader(text)); err != nil {
			b.Fatal(err)
		}
		if err := x.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSearch(b *testing.B) {
	x := openIndex(b, Options{})
	for i := range uint64(4) {
		if _, err := x.Add(b.Context(), testBase, Source{Label: "log"}, bytes.NewReader(logText(i, 16<<20))); err != nil {
			b.Fatal(err)
		}
	}
	for _, query := range []string{"module_137", "module_17 panic", "connection refused", "conecton refusd", "panic", "nowhere"} {
		b.Run(strings.ReplaceAll(query, " ", "_"), func(b *testing.B) {
			for b.Loop() {
				if _, err := x.Search(b.Context(), testBase, Query{Text: query}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
