package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// reported passes events to a report and returns its output and whether all tests passed.
func reported(t *testing.T, mode string, lines ...string) (out string, well bool) {
	t.Helper()
	var b bytes.Buffer
	r := &runner{options: &options{mode: mode}}
	r.report = newReport(&b, r.options)
	r.report.begin("corral/a", 1)
	r.events(strings.NewReader(strings.Join(lines, "\n")), "unit", func(event, string) {})
	r.report.end("corral/a")
	well = r.report.finish()
	return b.String(), well
}

// TestCommandWithRaceDetector: the command that runs a test alone runs it as its process did.
func TestCommandWithRaceDetector(t *testing.T) {
	for race, want := range map[bool]string{
		false: "sudo make test PKG=./a RUN='^TestX$'", true: "sudo make test PKG=./a RUN='^TestX$' RACE=1",
	} {
		if got := newReport(io.Discard, &options{mode: "all"}).command(label(machinePhase, race), event{Package: "corral/a", Test: "TestX"}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// line returns an event of package a.
func line(action, test, output string, seconds float64) string {
	b, _ := json.Marshal(event{Action: action, Package: "corral/a", Test: test, Output: output, Elapsed: seconds})
	return string(b)
}

func TestReport(t *testing.T) {
	const reason = "    a_test.go:7: Linux 9.9, not 6.1\n"
	tests := []struct {
		name  string
		mode  string
		lines []string
		well  bool
		want  []string // parts
		never string   // no part
	}{
		{
			"passed", "all",
			[]string{
				line("output", "TestX", "=== RUN   TestX\n", 0), line("pass", "TestX", "", 1.5), line("pass", "", "", 2),
			},
			true,
			[]string{"ok    a ", "1 passed   0 failed   0 skipped     2.0 s\n", "1.5 s  a.TestX", "\n1 passed, 0 failed, 0 skipped in "},
			"RUN",
		},
		{
			"failed", "all",
			[]string{
				line("output", "TestX/one", "    a_test.go:3: wrong\n", 0), line("output", "TestX/two", "    a_test.go:9: fine\n", 0),
				line("fail", "TestX/one", "", 0), line("pass", "TestX/two", "", 0), line("fail", "TestX", "", 0), line("fail", "", "", 0),
			},
			false,
			[]string{
				"---- FAIL a.TestX/one (unit", "a_test.go:3: wrong", "sudo make test PKG=./a RUN='^TestX$/^one$'", "FAIL  a ",
				"how to run each alone:\n  sudo make test PKG=./a RUN='^TestX$'\n      a_test.go:3: wrong\n", "\n0 passed, 1 failed",
			},
			"fine",
		},
		{
			"failed as a unit test", "unit",
			[]string{line("fail", "TestX", "", 0)},
			false,
			[]string{"make test-unit PKG=./a RUN='^TestX$'"},
			"sudo",
		},
		{
			"the process failed", "all",
			[]string{line("output", "", "left on the machine: process 7\n", 0), line("fail", "", "", 0)},
			false,
			[]string{"---- FAIL a (unit", "left on the machine: process 7", "  sudo make test PKG=./a\n      left on the machine: process 7\n"},
			"RUN",
		},
		{
			"skipped", "all",
			[]string{line("output", "TestX", reason, 0), line("skip", "TestX", "", 0)},
			true,
			[]string{"skipped:\n  Linux 9.9, not 6.1: a.TestX\n", "0 passed, 0 failed, 1 skipped"},
			"alone",
		},
		{
			"left to machine tests", "all",
			[]string{line("output", "TestX", "    a_test.go:7: not a unit test: needs root\n", 0), line("skip", "TestX", "", 0)},
			true,
			[]string{"0 passed, 0 failed, 0 skipped"},
			"skipped:\n",
		},
		{
			"not an event", "all",
			[]string{"# corral/a", line("output", "", "FAIL\tcorral/a [build failed]\n", 0), line("fail", "", "", 0)},
			false,
			[]string{"build failed"},
			"RUN",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, well := reported(t, tt.mode, tt.lines...)
			if well != tt.well {
				t.Errorf("all is well: %t", well)
			}
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			if strings.Contains(out, tt.never) {
				t.Errorf("%q in\n%s", tt.never, out)
			}
		})
	}
}

// TestOther: the summary names a failed command that is not a package (the guest), with the tests that failed in it.
func TestOther(t *testing.T) {
	var b bytes.Buffer
	r := newReport(&b, &options{})
	r.other("guest", "scripts/test-vm", "---- isolate: exit 1\n--- FAIL: TestKill (3.00s)\nok    cgroup\n", errors.New("exit status 1"), time.Second)
	if r.finish() {
		t.Error("all is well")
	}
	want := "how to run each alone:\n  sudo scripts/test-vm\n      --- FAIL: TestKill (3.00s)\n\n0 passed, 1 failed"
	if !strings.Contains(b.String(), want) {
		t.Errorf("no %q in\n%s", want, b.String())
	}
}

// TestPackageLine: the line of a package is printed after its last piece of work, not before.
func TestPackageLine(t *testing.T) {
	var b bytes.Buffer
	r := newReport(&b, &options{})
	r.begin("corral/a", 1)
	r.begin("corral/a", 2)
	for range 2 {
		r.end("corral/a")
	}
	if b.Len() > 0 {
		t.Errorf("too early: %s", b.String())
	}
	r.end("corral/a")
	if got := strings.Count(b.String(), "\n"); got != 1 {
		t.Errorf("%d lines: %s", got, b.String())
	}
}

func TestParse(t *testing.T) {
	for args, want := range map[string]string{
		"":                "",
		"unit":            "",
		"soak -jobs 3":    "",
		"fast":            "unit, all or soak",
		"all -run (":      "-run: error parsing regexp",
		"all -jobs 0":     "less than 1",
		"all ./isolate":   `unexpected argument "./isolate"`,
		"all -pkg ./a -x": "flag provided but not defined",
	} {
		_, err := parse(strings.Fields(args))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// TestQuarantine: the failure of a quarantined test is named and does not fail the run. A data race, a crash, what it leaves on the
// machine, and the failure of any other test do.
func TestQuarantine(t *testing.T) {
	for name, tt := range map[string]struct {
		test, output, ofProcess string
		well                    bool
	}{
		"known":                  {"TestFlaky", "    a_test.go:3: nothing in 10s\n", "FAIL\n", true},
		"a word of its output":   {"TestFlaky", "    a_test.go:3: no panic: fine\n", "FAIL\n", true},
		"another test":           {"TestX", "    a_test.go:3: nothing in 10s\n", "", false},
		"a data race":            {"TestFlaky", "WARNING: DATA RACE\n", "", false},
		"a crash":                {"TestFlaky", "panic: nil\n", "", false},
		"left on the machine":    {"TestFlaky", "    a_test.go:3: nothing in 10s\n", "FAIL\nleft on the machine: process 7\n", false},
		"the process was killed": {"TestFlaky", "    a_test.go:3: nothing in 10s\n", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			r := &runner{options: &options{mode: "all"}}
			r.report = newReport(&b, r.options)
			r.report.quarantine = map[string]bool{"a.TestFlaky": true}
			for _, l := range []string{line("output", tt.test, tt.output, 0), line("fail", tt.test, "", 0), line("output", "", tt.ofProcess, 0), line("fail", "", "", 0)} {
				r.events(strings.NewReader(l), "unit", func(event, string) {})
			}
			if well := r.report.finish(); well != tt.well || !r.report.failed() {
				t.Errorf("well: %v\n%s", well, b.String())
			}
			if tt.well && !strings.Contains(b.String(), "quarantined in CONTRIBUTING.md:\n  sudo make test PKG=./a RUN='^TestFlaky$'") {
				t.Error(b.String())
			}
		})
	}
}

// TestQuarantineList: each row of the list names a test, and a row has what is known about it.
func TestQuarantineList(t *testing.T) {
	root := filepath.Join("..", "..")
	list, err := readQuarantine(filepath.Join(root, quarantineList))
	if err != nil {
		t.Fatal(err)
	}
	for name := range list {
		pkg, test, _ := strings.Cut(name, ".")
		if !slices.Contains(testsOf(t, filepath.Join(root, pkg)), test) {
			t.Errorf("%s has %s, which is not a test", quarantineList, name)
		}
	}
	file := filepath.Join(t.TempDir(), "list")
	const text = "| test | known |\n|---|---|\n| `isolate/cell.TestX` | since May: a port is taken |\n| `job.TestY` |  |\n`job.TestZ`\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := readQuarantine(file); err != nil || len(list) != 1 || !list["isolate/cell.TestX"] {
		t.Errorf("%v, %v", list, err)
	}
}
