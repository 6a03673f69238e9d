package inside

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"corral/internal/test/sandboxtest"
)

// TestStepTablesDocumented: ARCHITECTURE.md has the stub's four tables: each step with its name and reason, in order.
func TestStepTablesDocumented(t *testing.T) {
	row := regexp.MustCompile(`\{\s*"([^"]*)",\s*"([^"]*)",`) // in C: name, reason
	line := regexp.MustCompile("(?m)^\\| `([^`]*)` \\| (.*) \\|$")
	stub := source(t, "slot.c") + source(t, "ahead.c") + source(t, "place.c") + source(t, "confine.c")
	b, err := os.ReadFile(filepath.Join(sandboxtest.ModuleRoot(t), "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	pairs := func(re *regexp.Regexp, text string) []string {
		var list []string
		for _, m := range re.FindAllStringSubmatch(text, -1) {
			list = append(list, m[1]+": "+m[2])
		}
		return list
	}
	total := 0
	for _, table := range []string{"slot_steps", "ahead_steps", "place_steps", "confine_steps"} {
		want := pairs(row, part(t, stub, table+"[] = {", "};"))
		got := pairs(line, part(t, string(b), "<!-- steps: "+table+" -->", "<!-- /steps -->"))
		if !slices.Equal(got, want) {
			t.Errorf("%s: ARCHITECTURE.md has\n%q, the stub has\n%q", table, got, want)
		}
		total += len(want)
	}
	if total != len(Steps) {
		t.Errorf("%d rows in the stub's tables, want %d, the number of Steps", total, len(Steps))
	}
}
