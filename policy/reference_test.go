package policy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestReference: the reference page lists the steps of the chain, in order.
func TestReference(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(sandboxtest.ModuleRoot(t), "docs/reference/policy.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Steps\n")
	section, _, ok := strings.Cut(section, "\nThree rules ")
	var got, want []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		got = append(got, m[1])
	}
	for _, s := range steps {
		want = append(want, s.rule)
	}
	if !ok || !slices.Equal(got, want) {
		t.Errorf("the page has %q, the code %q", got, want)
	}
}
