package seccomp

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
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
		"allowed":   allowedTable(),
		"arguments": conditionTable(),
		"refused":   refusedTable(t),
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

// allowedTable returns a row for each family of allowed calls. Why jobs may make them is beside their names in the code; the page has why
// strict refuses some.
func allowedTable() string {
	table := "| family | calls | strict |\n|---|---|---|\n"
	for _, f := range allowed {
		_, strict, _ := strings.Cut(f.reason, "strict: ")
		if f.strict != "" {
			strict = string(f.strict) + ": " + strict
		}
		table += fmt.Sprintf("| %s | %s | %s |\n", f.name, namesOf(f), strict)
	}
	return table
}

// refusedTable returns a row for each family of refused calls, which strict refuses in the same way.
func refusedTable(t *testing.T) string {
	t.Helper()
	table := "| family | answer | calls | reason |\n|---|---|---|---|\n"
	for _, f := range refused {
		if f.strict != "" {
			t.Errorf("%s: strict has an answer of its own, for which the table has no column", f.name)
		}
		table += fmt.Sprintf("| %s | %s | %s | %s |\n", f.name, f.verdict, namesOf(f), f.reason)
	}
	return table
}

// namesOf returns the calls of a family. Those with argument rules have a footnote's number.
func namesOf(f family) string {
	var list []string
	for _, r := range f.rules(defaultProfile) {
		call := "`" + r.Name + "`"
		if r.Verdict == ByArgument {
			call += "¹"
		}
		list = append(list, call)
	}
	return strings.Join(list, " ")
}

// conditionTable returns a row for the calls that have an argument rule in common, in the order of the rules.
func conditionTable() string {
	var rules []string
	calls := map[string][]string{} // by rule
	for _, c := range conditions {
		rule := fmt.Sprintf("%s | %s | %s", shown(defaultProfile, c.call), shownStrict(c.call), argumentReasons[c.call])
		if calls[rule] == nil {
			rules = append(rules, rule)
		}
		if call := "`" + c.call + "`"; !slices.Contains(calls[rule], call) {
			calls[rule] = append(calls[rule], call)
		}
	}
	table := "| calls | default | strict | because |\n|---|---|---|---|\n"
	for _, rule := range rules {
		table += fmt.Sprintf("| %s | %s |\n", strings.Join(calls[rule], " "), rule)
	}
	return table
}

const noOthers = "the job has one user and one group"

// argumentReasons says why arguments of these calls are refused.
var argumentReasons = map[string]string{
	"clone": "namespaces", "unshare": "namespaces",
	"chown": noOthers, "fchown": noOthers, "lchown": noOthers, "fchownat": noOthers,
	"mknod": "set-id bits, devices", "mknodat": "set-id bits, devices",
	"mmap":       "the host's pool of huge pages",
	"prctl":      "core scheduling keeps others off the host's processors",
	"socket":     "families and protocols: kernel code that programs in a network of their own do not need",
	"socketpair": "families and protocols: kernel code that programs in a network of their own do not need",
	"setsockopt": "options: protocols in the kernel, and memory of the kernel that is charged to nobody",
	"seccomp":    "a listener decides about calls of programs with other rights",
	"fcntl":      "open file description locks: nobody can be charged for those that are queued in a socket",
	"ioctl":      "input for terminals that others read, line disciplines, drivers",
	"chmod":      "set-id bits", "fchmod": "set-id bits", "fchmodat": "set-id bits",
	"open": "set-id bits", "openat": "set-id bits", "creat": "set-id bits",
	"renameat2":    "whiteouts: overlayfs takes one for a deleted file",
	"memfd_create": "the host's pool of huge pages",
	"personality":  "addresses below 64 KiB and an executable stack, which help exploits",
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

// shownStrict returns what the profile strict has in place of default's argument rule of a call.
func shownStrict(call string) string {
	rule, list := shown(strictProfile, call), conditionsOf(strictProfile, call)
	byDefault := text(conditionsOf(defaultProfile, call))
	switch own := slices.DeleteFunc(slices.Clone(list), func(c condition) bool { return strings.Contains(byDefault, text([]condition{c})) }); {
	case rule == byDefault:
		return "the same"
	case rule == "–" || len(own) == len(list):
		return rule
	default:
		return text(own) + "; else the same"
	}
}
