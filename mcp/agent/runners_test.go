package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRunners: the failed tests in what real test runners wrote about two failed tests, or one, and one that passed.
func TestRunners(t *testing.T) {
	want := map[string][]string{
		"go":       {"--- FAIL: TestAdds (0.00s)", "    --- FAIL: TestAdds/one (0.00s)", "FAIL\tx\t"},
		"pytest":   {"FAILED test_a.py::test_adds - assert 1 == 2", "FAILED test_a.py::TestU::test_sub - AssertionError: 1 != 2"},
		"unittest": {"FAIL: test_sub (test_a.TestU"},
		"node-tap": {"not ok 1 - adds", "    not ok 1 - of two", "not ok 2 - sum"}, "node-spec": {"✖ adds (", "  ✖ of two (", "✖ sum ("},
		"jest": {"FAIL ./a.test.js", "    ✕ of two", "  ● sum › of two"}, "mocha": {"  1) sum"}, "mocha-tap": {"not ok 1 sum of two"},
		"rspec": {"rspec ./a_spec.rb:2 # sum adds"}, "phpunit": {"1) ATest::testAdds"}, "phpunit-testdox": {" ✘ Adds"},
		"prove": {"#   Failed test 'adds'"}, "cargo": {"test tests::adds ... FAILED"},
		"ctest": {"1/2 Test #1: adds .............................***Failed"},
	}
	files, err := filepath.Glob("testdata/runners/*.txt")
	if err != nil || len(files) != len(want) {
		t.Fatalf("%d files, want %d, %v", len(files), len(want), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// The runs were short: other lines make them long, so that a reply does not show all.
		d := newDigest(2048, "")
		for n := range 500 {
			_, _ = fmt.Fprintf(d, "ok %d\n", n)
		}
		_, _ = d.Write(b)
		for n := range 500 {
			_, _ = fmt.Fprintf(d, "later %d\n", n)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		var got []string
		for _, one := range d.found.tests {
			got = append(got, one.text)
		}
		if !slices.EqualFunc(got, want[name], strings.HasPrefix) {
			t.Errorf("%s: %q, want the beginnings %q", name, got, want[name])
		}
		if text := d.end(); !strings.Contains(text, "… failed tests:\n") || !strings.Contains(text, want[name][0]) {
			t.Errorf("%s: the reply does not name them:\n%s", name, text)
		}
	}
}

// TestFoldSeveral: a few lines that repeat in any order are folded, and all others keep theirs.
func TestFoldSeveral(t *testing.T) {
	d := newDigest(1000, "")
	for n := range 20_000 {
		line := "sh: 1: Cannot fork"
		if n%3 == 0 || n%7 == 0 {
			line = "sh: 2: Resource temporarily unavailable"
		}
		_, _ = fmt.Fprintln(d, line)
	}
	_, _ = fmt.Fprint(d, "end\na\nb\na\nb\na\n")
	const want = "sh: 2: Resource temporarily unavailable\nsh: 1: Cannot fork\n… the last 2 lines above, 19998 times in some order\n" +
		"end\na\nb\na\nb\na\n"
	if got := d.end(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
