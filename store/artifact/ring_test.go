package artifact

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestRing compares a ring with the whole stream, for pieces of any size.
func TestRing(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		r := ring{size: 1 + rng.IntN(20)}
		var all []byte
		for range 20 {
			p := make([]byte, rng.IntN(50))
			for i := range p {
				p[i] = byte(rng.Uint32())
			}
			r.write(p)
			all = append(all, p...)
			kept := all[max(0, len(all)-r.size):]
			if r.total != int64(len(all)) || r.first() != int64(len(all)-len(kept)) || !bytes.Equal(r.last(r.total), kept) {
				t.Fatalf("%d bytes, size %d: %v, want %v", len(all), r.size, r.last(r.total), kept)
			}
			from := rng.IntN(len(kept) + 1)
			part := make([]byte, rng.IntN(30))
			part = part[:r.read(r.first()+int64(from), part)]
			if !bytes.HasPrefix(kept[from:], part) || len(part) == 0 && from < len(kept) && cap(part) > 0 {
				t.Fatalf("from %d: %v of %v", from, part, kept)
			}
		}
	}
}
