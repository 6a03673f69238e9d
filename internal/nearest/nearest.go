// Package nearest finds the known word that a mistyped one most likely stands for.
package nearest

import "strings"

// maxWord is the maximum length in bytes of a word that is compared: words are untrusted, and the time grows with the
// length.
const maxWord = 64

// Of returns the word in known that word most likely stands for, or "" if there is none: the only one that word begins, or the most
// similar one. A similar word differs by at most two bytes changed, added or missing, or by a third of its length if that is more,
// and has at least one byte in common; a short one that begins with another byte differs by one. Of several equally similar words Of
// returns the first. Dashes in front of word do not count.
func Of(word string, known []string) string {
	word = strings.TrimLeft(word, "-")
	if len(word) > maxWord || word == "" {
		return ""
	}
	if whole := begunBy(word, known); whole != "" {
		return whole
	}
	best, least := "", len(word)
	for _, k := range known {
		d := distance(word, k)
		if d > 1 && len(k) < shortWord && word[0] != k[0] {
			continue // people rarely mistype the first letter, and two changes make any short word
		}
		if d < least && d < len(k) && d <= max(2, len(k)/3) {
			best, least = k, d
		}
	}
	return best
}

// shortWord is the length in bytes of the first word that is not short.
const shortWord = 6

// begunBy returns the only word in known that begins with word, of at least two bytes; "" if there is none or several.
func begunBy(word string, known []string) (whole string) {
	several := false
	for _, k := range known {
		switch {
		case k == word:
			return k
		case len(word) < 2 || !strings.HasPrefix(k, word):
		case whole != "":
			several = true
		default:
			whole = k
		}
	}
	if several {
		return ""
	}
	return whole
}

// distance returns the number of bytes to change, add or remove to turn a into b (V. I. Levenshtein, 1966).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
