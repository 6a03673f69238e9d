package starlark

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestReference checks that the reference page lists the attributes of a request.
func TestReference(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(sandboxtest.ModuleRoot(t), "docs/reference/policy.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n`request` has:\n")
	section, _, _ = strings.Cut(section, "\nThe last row ")
	var got []string
	for _, line := range strings.Split(section, "\n") {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			got = append(got, m[1])
		}
	}
	slices.Sort(got)
	if want := (&request{}).AttrNames(); !slices.Equal(got, want) {
		t.Errorf("the page lists %q, the code has %q", got, want)
	}
}
