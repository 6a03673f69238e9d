package scan

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestBoundsDocumented: docs/reference/limits.md lists the scanner's bounds. If this fails, copy the wanted rows to the
// page.
func TestBoundsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n## Limits of the scanner\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	got := slices.DeleteFunc(regexp.MustCompile(`(?m)^\|.*$`).FindAllString(rest, -1), func(row string) bool {
		return row == "| | |" || strings.HasPrefix(row, "|-")
	})
	thousands := func(n int) string {
		s := fmt.Sprint(n)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	}
	b := Bounds{}.withDefaults()
	want := []string{
		fmt.Sprintf("| sensitive paths named in a result | %d; the rest are counted |", b.MaxReport),
		fmt.Sprintf("| paths that are protected, with the directories above them; more are refused | %s, of %d KiB together |", thousands(MaxKept), MaxKeptBytes>>10),
		fmt.Sprintf("| directories | %s, %d levels |", thousands(b.MaxDirs), MaxDepth),
		fmt.Sprintf("| entries read in one look | %s |", thousands(b.MaxEntries)),
		fmt.Sprintf("| time of one look | %d s |", int(serveTime.Seconds())),
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
