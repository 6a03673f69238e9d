package runtimes

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

var update = flag.Bool("update", false, "write what is generated from the table")

// documented returns a runtime's line in the documentation.
func documented(r Runtime) string {
	code := func(list []string) string { return "`" + strings.Join(list, "` `") + "`" }
	source := code(strings.Fields(r.Debian))
	if r.Debian == "" {
		source = "none: `" + r.Elsewhere + "`"
	}
	return fmt.Sprintf("| `%s` | %s | `%s` | %s | %s |", r.Name, code(r.Candidates()), r.File, r.Run, source)
}

// TestDocument compares what is generated from the table with it: the names in package job, the page, and what scripts/setup
// installs for the tests. With -update it writes them.
func TestDocument(t *testing.T) {
	var names, rows []string
	for _, r := range table {
		names = append(names, strconv.Quote(r.Name))
		rows = append(rows, documented(r)+"\n")
	}
	compare(t, "job/runtimes.go", "return []string{\n", "\t}\n", "\t\t"+strings.Join(names, ",\n\t\t")+",\n")
	page := compare(t, "docs/reference/runtimes.md", "|---|---|---|---|---|\n", "\n<!-- /runtimes -->", strings.Join(rows, ""))
	for _, dir := range goCaches {
		if !strings.Contains(page, "`"+dir+"`") {
			t.Errorf("the page does not name %s", dir)
		}
	}
	const begin, end = "# generated: runtimes\n", "# /generated: runtimes\n"
	setup := read(t, "scripts/setup")
	before, rest, _ := strings.Cut(setup, begin)
	_, after, _ := strings.Cut(rest, end)
	compare(t, "scripts/setup", begin, end, installed(before+after))
}

// installed returns the lines of scripts/setup for the packages that have none in other, the rest of the script.
func installed(other string) string {
	var lines strings.Builder
	for _, r := range table {
		for _, name := range strings.Fields(r.Debian + strings.TrimPrefix(r.Elsewhere, "npm install --global")) {
			if !regexp.MustCompile(`(?m)^(?:test|build) +`+regexp.QuoteMeta(name)+`[@ ]`).MatchString(other) && !slices.Contains(implied, name) {
				fmt.Fprintf(&lines, "test   %-17s %-20s runs in jails: %s\n", name, r.Candidates()[0], r.Name)
			}
		}
	}
	return lines.String()
}

// compare compares the text between begin and end in a file of the repository with want, and writes it with -update. It returns the
// file as it should be.
func compare(t *testing.T, file, begin, end, want string) string {
	t.Helper()
	content := read(t, file)
	before, rest, found := strings.Cut(content, begin)
	got, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has nothing between %q and %q", file, begin, end)
	}
	whole := before + begin + want + end + after
	switch {
	case got == want:
	case !*update:
		t.Errorf("%s is out of date. Run: go test ./policy/runtimes -run TestDocument -update\nit has\n%s\nwant\n%s", file, got, want)
	default:
		if err := os.WriteFile(filepath.Join(sandboxtest.ModuleRoot(t), file), []byte(whole), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return whole
}

// read returns a file of the repository.
func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(sandboxtest.ModuleRoot(t), file))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// implied are packages that others in the list depend on, or that are always installed, or that the tests of Go need.
var implied = []string{"bash", "golang-go", "libmono-system-core4.0-cil"}
