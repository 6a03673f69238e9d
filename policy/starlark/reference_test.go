package starlark

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

var update = flag.Bool("update", false, "write the names of limits in docs/reference/policy.md")

// TestReference checks that the reference page lists the attributes of a request. With -update it writes those that are limits, which
// are the last row.
func TestReference(t *testing.T) {
	file := filepath.Join(sandboxtest.ModuleRoot(t), "docs/reference/policy.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(page), "\n`request` has:\n")
	section, after, ok := strings.Cut(rest, "\n\nThe last row ")
	last := strings.LastIndex(section, "\n| ") + len("\n| ")
	names, said, told := strings.Cut(section[last:], " | ")
	if !ok || !told {
		t.Fatal("the page has no table of attributes")
	}
	var limits []string
	for _, u := range units {
		limits = append(limits, "`"+u.name+"`")
	}
	if want := strings.Join(limits, " "); names != want {
		if !*update {
			t.Fatalf("the page is out of date. Run: go test ./policy/starlark -run TestReference -update\nit has %s\nwant   %s", names, want)
		}
		section = section[:last] + want + " | " + said
		if err := os.WriteFile(file, []byte(before+"\n`request` has:\n"+section+"\n\nThe last row "+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for line := range strings.Lines(section) {
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
