package execute

import (
	"reflect"
	"strings"
	"testing"

	"corral/store/index"
)

// TestPickLines: the best line of each hit comes first, then the other matching lines, up to the limit.
func TestPickLines(t *testing.T) {
	hit := func(stream string, start, best int64, text string, marks ...[2]int) index.Hit {
		return index.Hit{Stream: stream, LineStart: start, LineEnd: start + int64(strings.Count(text, "\n")), LineNumber: best, Text: text, Marks: marks}
	}
	a := hit("stdout", 11, 12, "x\nhit hit\ny\nhit", [2]int{2, 5}, [2]int{6, 9}, [2]int{12, 15})
	b := hit("stderr", 1, 1, "hit", [2]int{0, 3})
	odd := hit("stdout", 50, 51, "hit hit hit", [2]int{0, 3})
	odd.LineEnd = 60 // its text is not a sequence of the stream's lines
	for _, tt := range []struct {
		lists [][]index.Hit
		most  int
		want  map[string][]int64
	}{
		{[][]index.Hit{{a, b}}, 10, map[string][]int64{"stdout": {12, 14}, "stderr": {1}}},
		{[][]index.Hit{{a, b}}, 2, map[string][]int64{"stdout": {12}, "stderr": {1}}},
		{[][]index.Hit{{a}, {b, odd}}, 10, map[string][]int64{"stdout": {12, 51, 14}, "stderr": {1}}},
		{[][]index.Hit{{a, a}, {a}}, 10, map[string][]int64{"stdout": {12, 14}}},
		{nil, 10, map[string][]int64{}},
		{[][]index.Hit{{a}}, 0, map[string][]int64{}},
	} {
		if got := pickLines(tt.lists, tt.most); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%v, want %v", got, tt.want)
		}
	}
}
