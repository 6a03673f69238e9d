package seccomp

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "write the tables of docs/reference/seccomp.md")

// TestDocument compares the tables of docs/reference/seccomp.md with those of this package. With -update it writes them.
func TestDocument(t *testing.T) {
	const file = "../docs/reference/seccomp.md"
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page := string(content)
	tables := map[string]string{
		"size":      sizeTable(t),
		"allowed":   familyTable(allowed),
		"arguments": conditionTable(),
		"refused":   familyTable(refused),
	}
	var host unix.Utsname
	if err := unix.Uname(&host); err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(unix.ByteSliceToString(host.Release[:]), "6.18.") && runtime.GOARCH == "amd64" { // other kernels answer differently
		tables["answers"] = answersTable(t)
	}
	for name, table := range tables {
		begin, end := "<!-- generated: "+name+" -->\n", "<!-- /generated: "+name+" -->"
		before, rest, found := strings.Cut(page, begin)
		_, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			t.Fatalf("%s has no section %q", file, name)
		}
		page = before + begin + table + end + after
	}
	switch {
	case page == string(content):
	case !*update:
		t.Errorf("%s is out of date. Run: go test -tags seccomp ./seccomp -run TestDocument -update", file)
	default:
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func sizeTable(t *testing.T) string {
	table := "| profile | for | instructions of the filter, x86-64 / arm64 |\n|---|---|---|\n"
	for _, row := range []struct{ profile, purpose string }{
		{defaultProfile, "shells, compilers, package managers, debuggers, databases"},
		{strictProfile, "programs that need no tracing, System V IPC, message queues or memory files"},
	} {
		size := func(arch string) int { return len(compile(t, row.profile, arch)) / instructionSize }
		table += fmt.Sprintf("| `%s` | %s | %d / %d |\n", row.profile, row.purpose, size("amd64"), size("arm64"))
	}
	return table
}

// familyTable returns a row for each family. Calls with argument rules have a footnote's number.
func familyTable(families []family) string {
	table := "| family | default | strict | calls | reason |\n|---|---|---|---|---|\n"
	for _, f := range families {
		var calls []string
		for _, r := range f.rules(defaultProfile) {
			call := "`" + r.Name + "`"
			if r.Verdict == ByArgument {
				call += "¹"
			}
			calls = append(calls, call)
		}
		strict := f.verdict
		if f.strict != "" {
			strict = f.strict
		}
		table += fmt.Sprintf("| %s | %s | %s | %s | %s |\n", f.name, f.verdict, strict, strings.Join(calls, " "), f.reason)
	}
	return table
}

// conditionTable returns a row for each call with an argument rule, in the order of the rules.
func conditionTable() string {
	table := "| call | default | strict |\n|---|---|---|\n"
	done := map[string]bool{}
	for _, c := range conditions {
		if done[c.call] {
			continue
		}
		done[c.call] = true
		byDefault, strict := shown(defaultProfile, c.call), shown(strictProfile, c.call)
		if strict == byDefault {
			strict = "the same"
		}
		table += fmt.Sprintf("| `%s` | %s | %s |\n", c.call, byDefault, strict)
	}
	return table
}

// shown returns the argument rule of a call in a profile, "–" if it has none.
func shown(profile, call string) string {
	for _, r := range Table(profile) {
		if r.Name == call && r.Condition != "" {
			return r.Condition
		}
	}
	return "–"
}
