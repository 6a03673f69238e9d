package job

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// limitRows describes what each limit bounds, and the option of corral run that sets it.
var limitRows = map[string]struct{ text, option string }{
	"memory":     {"memory of all processes together, with page cache; no swap", "`--memory`"},
	"cpus":       {"CPU time per second", "`--cpus`"},
	"pids":       {"processes and threads", "`--pids`"},
	"timeout":    {"time from start to end", "`--timeout`"},
	"tmp":        {"bytes in each of `/tmp`, `/var/tmp`, `/home`, `/dev/shm`", "`--tmp`"},
	"tmp inodes": {"files in each of them", "– (`tmp_inodes`)"},
	"disk":       {"bytes added to the repository", "`--disk`"},
	"inodes":     {"files added to the repository", "`--inodes`"},
	"file size":  {"size of one file", "`--file-size`"},
	"open files": {"open files of a process", "`--nofile`"},
}

// shown formats a value of a limit as the page shows it.
func shown(name string, v int64) string {
	switch {
	case v == 0 || v == Unlimited:
		if name == "cpus" {
			return "all"
		}
		return "none"
	case name == "cpus":
		return FormatCPUs(v)
	case name == "timeout":
		if d := time.Duration(v); d%(24*time.Hour) == 0 {
			return fmt.Sprintf("%d days", d/(24*time.Hour))
		}
		return fmt.Sprintf("%d ms", time.Duration(v).Milliseconds())
	case slices.Contains([]string{"memory", "tmp", "disk", "file size"}, name):
		return bytesShown(v)
	case v >= 1<<30 && v&(v-1) == 0:
		power := len(strconv.FormatInt(v, 2)) - 1
		return "2" + strings.NewReplacer("0", "⁰", "1", "¹", "2", "²", "3", "³", "4", "⁴", "5", "⁵", "6", "⁶", "7", "⁷", "8", "⁸", "9", "⁹").Replace(strconv.Itoa(power))
	}
	return thousands(v)
}

func bytesShown(v int64) string {
	for i, unit := range []string{" PiB", " TiB", " GiB", " MiB", " KiB"} {
		if one := int64(1) << (50 - 10*i); v%one == 0 {
			return strconv.FormatInt(v/one, 10) + unit
		}
	}
	return strconv.FormatInt(v, 10)
}

func thousands(v int64) string {
	s := strconv.FormatInt(v, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// TestDocument: docs/reference/limits.md has each limit with its option, default and range. If the test fails because
// a limit was added, copy what it wants to the page.
func TestDocument(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page),
		"<!-- limits -->\n\n| limit | option | default | range | can be lifted |\n|---|---|---|---|---|\n")
	got, _, _ := strings.Cut(rest, "\n<!-- /limits -->")
	var want strings.Builder
	defaults := Defaults()
	for _, f := range defaults.Fields() {
		lifted := "no"
		if f.Liftable {
			lifted = "yes"
		}
		row, ok := limitRows[f.Name]
		if !ok {
			t.Errorf("limitRows has no row for %s", f.Name)
		}
		fmt.Fprintf(&want, "| %s | %s | %s | %s – %s | %s |\n",
			row.text, row.option, shown(f.Name, *f.Value), shown(f.Name, f.Min), shown(f.Name, f.Max), lifted)
	}
	if got != want.String() {
		t.Errorf("the page has\n%s\nwant\n%s", got, want.String())
	}
}
