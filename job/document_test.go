package job

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the table of docs/reference/limits.md")

// shown formats a value of a limit as the page shows it.
func shown(u Unit, v int64) string {
	switch {
	case v == Unlimited && u == CPUs:
		return "all"
	case v == Unlimited:
		return "none"
	case u == CPUs:
		return FormatCPUs(v)
	case u == Time:
		if d := time.Duration(v); d%(24*time.Hour) == 0 {
			return fmt.Sprintf("%d days", d/(24*time.Hour))
		}
		return fmt.Sprintf("%d ms", time.Duration(v).Milliseconds())
	case u == Bytes:
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

// TestDocument compares the table of limits in docs/reference/limits.md with the code. With -update it writes the table.
func TestDocument(t *testing.T) {
	const file = "../docs/reference/limits.md"
	const begin, end = "<!-- limits -->\n\n| limit | option | key | default | range | can be lifted |\n|---|---|---|---|---|---|\n", "\n<!-- /limits -->"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), begin)
	got, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no table between %q and %q", file, begin, end)
	}
	want := limitTable()
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("%s is out of date. Run: go test ./job -run TestDocument -update\nit has\n%s\nwant\n%s", file, got, want)
	}
	if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func limitTable() string {
	var table strings.Builder
	defaults := Defaults()
	for _, f := range defaults.Fields() {
		lifted, option := "no", "–"
		if f.Liftable {
			lifted = "yes"
		}
		if f.Option != "" {
			option = "`--" + f.Option + "`"
		}
		fmt.Fprintf(&table, "| %s | %s | `%s` | %s | %s – %s | %s |\n",
			f.Phrase(), option, f.Key(), shown(f.Unit, *f.Value), shown(f.Unit, f.Min), shown(f.Unit, f.Max), lifted)
	}
	return table.String()
}
