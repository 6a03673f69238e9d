// Package nearest finds the known word that a mistyped one most likely stands for.
package nearest

// maxWord is the maximum length in bytes of a word that is compared: words are untrusted, and the time grows with the
// length.
const maxWord = 64

// Of returns the word in known that is most similar to word, or "" if none is similar. A similar word differs by at most
// two bytes changed, added or missing, or by a third of its length if that is more, and has at least one byte in common.
// Of several equally similar words it returns the first.
func Of(word string, known []string) string {
	if len(word) > maxWord {
		return ""
	}
	best, least := "", len(word)
	for _, k := range known {
		if d := distance(word, k); d < least && d < len(k) && d <= max(2, len(k)/3) {
			best, least = k, d
		}
	}
	return best
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
