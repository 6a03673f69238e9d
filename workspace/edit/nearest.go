package edit

import (
	"bytes"
	"fmt"
	"strings"

	"corral/internal/text"
)

// Bounds of a search for text that resembles a given one, and of what is shown of it.
const (
	maxSearched = 100_000 // lines of a file
	maxWanted   = 200     // lines of a text
	maxShown    = 8       // lines
	maxLine     = 160     // bytes of a line
	minShared   = 40      // percent of pairs of letters that a line must share to resemble another
)

// nearestText describes the part of content that resembles wanted most, for the end of an error. It returns a full stop if
// there is none.
func nearestText(content []byte, wanted string) string {
	want := textLines(wanted, maxWanted)
	have := textLines(string(content[:min(len(content), MaxFile)]), maxSearched)
	start, ok := vote(have, want)
	if !ok {
		start, ok = alike(have, want)
	}
	if !ok {
		return ", and no line resembles it."
	}
	var b strings.Builder
	fmt.Fprintf(&b, ". Nearest is line %d:\n", start+1)
	for i := start; i < min(start+len(want), start+maxShown, len(have)); i++ {
		fmt.Fprintf(&b, "%6d  %s\n", i+1, text.Cut(have[i], maxLine))
	}
	b.WriteString(difference(have[start:], want, start))
	return b.String()
}

// difference names the first line that differs.
func difference(have, want []string, start int) string {
	for i, w := range want {
		switch {
		case i >= len(have):
			return fmt.Sprintf("The file ends before line %d of old.", i+1)
		case have[i] == w:
		case strings.TrimSpace(have[i]) == strings.TrimSpace(w):
			return fmt.Sprintf("Line %d differs from line %d of old only in white space.", start+i+1, i+1)
		default:
			return fmt.Sprintf("Line %d differs from line %d of old: %s", start+i+1, i+1, text.Quote(text.Cut(w, maxLine)))
		}
	}
	return "The lines are the same, their ends differ."
}

// textLines returns the first lines of s, without their ends.
func textLines(s string, maximum int) []string {
	var list []string
	for line := range strings.Lines(s) {
		if len(list) == maximum {
			break
		}
		list = append(list, strings.TrimRight(line, "\r\n"))
	}
	return list
}

// vote returns where want begins in have if most of its lines were there: each line that both have, apart from white
// space, is a vote for one beginning.
func vote(have, want []string) (start int, ok bool) {
	at := map[string][]int{}
	for i, w := range want {
		if w = strings.TrimSpace(w); w != "" && len(at[w]) < 4 {
			at[w] = append(at[w], i)
		}
	}
	votes := map[int]int{}
	most := 0
	for i, h := range have {
		for _, k := range at[strings.TrimSpace(h)] {
			if i < k {
				continue
			}
			if votes[i-k]++; votes[i-k] > most {
				start, most = i-k, votes[i-k]
			}
		}
	}
	return start, most > 0
}

// alike returns the line that shares most pairs of letters with the longest line of want.
func alike(have, want []string) (start int, ok bool) {
	longest := 0
	for i := range want {
		if len(want[i]) > len(want[longest]) {
			longest = i
		}
	}
	if len(want) == 0 || len(strings.TrimSpace(want[longest])) < 3 {
		return 0, false
	}
	wanted := new(pairs)
	all, _ := wanted.add(want[longest], 1, nil)
	seen := new(pairs)
	best := 0
	for i, h := range have {
		total, both := seen.add(h, int32(i+1), wanted)
		if score := 200 * both / max(all+total, 1); score > best {
			start, best = i, score
		}
	}
	return max(start-longest, 0), best >= minShared
}

// pairs has, by pair of letters, the last mark that add was called with.
type pairs [1 << 16]int32

// add marks the pairs of letters of a line, without white space. It returns how many different ones there are, and how many
// of them are marked in other, too; twice that divided by the sum of both lines' pairs is Dice's coefficient.
func (p *pairs) add(line string, mark int32, other *pairs) (total, both int) {
	s := strings.Join(strings.Fields(text.Head(line, maxLine)), "")
	for i := 0; i+2 <= len(s); i++ {
		pair := int(s[i])<<8 | int(s[i+1])
		if p[pair] == mark {
			continue
		}
		p[pair] = mark
		total++
		if other != nil && other[pair] != 0 {
			both++
		}
	}
	return total, both
}

// lines splits content after each end of a line.
func lines(content []byte) [][]byte {
	list := bytes.SplitAfter(content, []byte("\n"))
	if n := len(list); len(list[n-1]) == 0 {
		list = list[:n-1]
	}
	return list
}
