package seccomp

import (
	"math/rand/v2"
	"testing"
)

// TestTreeFinds compares trees over random intervals, up to many more than a profile has, with a linear search.
func TestTreeFinds(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, length := range []int{1, 2, 3, 4, 10, 100, 300} {
		for range 5 {
			var a assembler
			var list []interval
			for first := uint32(0); len(list) < length; first += 1 + random.Uint32N(2)*random.Uint32N(5) {
				to := a.ret(random.Uint32N(4))
				if n := len(list); n == 0 || list[n-1].to != to {
					list = append(list, interval{first, to})
				}
			}
			answers := map[label]uint32{}
			for _, in := range list {
				answers[in.to] = a.code[in.to-1].K
			}
			a.load(offsetNr, newTree(list).write(&a))
			checkTree(t, &a, list, answers)
		}
	}
}

func checkTree(t *testing.T, a *assembler, list []interval, answers map[label]uint32) {
	t.Helper()
	last := list[len(list)-1].first
	want, i := uint32(0), 0
	for nr := range last + 3 {
		if i < len(list) && list[i].first == nr {
			want = answers[list[i].to]
			i++
		}
		if got := answerTo(t, a, nr); got != want {
			t.Fatalf("%d intervals: number %d gives %d, want %d", len(list), nr, got, want)
		}
	}
	if got := answerTo(t, a, 0xffffffff); got != want {
		t.Fatalf("%d intervals: the maximum number gives %d, want %d", len(list), got, want)
	}
}

// TestTreeMinimizesComparisons checks the number of comparisons: one for each isolated number, and one less than the
// number of intervals otherwise.
func TestTreeMinimizesComparisons(t *testing.T) {
	for _, c := range []struct {
		name   string
		firsts []uint32 // of intervals with targets a, b, a, b, ...
		want   int
	}{
		{"one interval", []uint32{0}, 0},
		{"two halves", []uint32{0, 10}, 1},
		{"a pair in between", []uint32{0, 10, 12}, 2},
		{"one alone", []uint32{0, 10, 11}, 1},
		{"two alone", []uint32{0, 200, 201, 300, 301}, 2},
		{"one alone, then others", []uint32{0, 200, 201, 400}, 2},
		{"two alone, few before", []uint32{0, 10, 11, 20, 21}, 3}, // most numbers need a single comparison
		{"one alone at the very end", []uint32{0, 0xffffffff}, 1},
	} {
		var a assembler
		ways := []label{a.ret(1), a.ret(2)}
		var list []interval
		for i, first := range c.firsts {
			list = append(list, interval{first, ways[i%2]})
		}
		newTree(list).write(&a)
		if got := len(a.code) - len(ways); got != c.want {
			t.Errorf("%s: %d comparisons, want %d", c.name, got, c.want)
		}
	}
}
