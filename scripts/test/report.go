package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// A report prints a line for each package when its last test has ended, the output of a failed test immediately, and a
// summary.
type report struct {
	begun      time.Time
	unit       bool            // the commands that run failed tests are those of unit tests
	quarantine map[string]bool // tests whose failure does not fail the run, by package and name

	mu          sync.Mutex
	out         io.Writer
	packages    map[string]*packageReport // guarded by mu
	output      map[string][]string       // guarded by mu: of tests that run
	causes      map[string]string         // guarded by mu: what failed subtests wrote, by the test that they are of
	slow        []timed                   // guarded by mu
	skipped     map[string][]string       // guarded by mu: reason → tests
	passed      int                       // guarded by mu
	failures    []*failure                // guarded by mu
	quarantined []*failure                // guarded by mu: of tests that are known to fail
}

// A failure is a test, a package or something else that failed.
type failure struct {
	command string   // runs it alone
	lines   []string // the first of those that say why
}

// saysWhy matches a line that explains a failure: of the test, of package testing, or of a panic.
var saysWhy = regexp.MustCompile(`^\s*([\w.-]+\.go:\d+: |--- FAIL: |panic: |left on the machine: )`)

// whyLines is the maximum number of such lines in the summary, since people see the end of a long log first.
const whyLines = 12

// why returns the first lines of a text that explain a failure.
func why(written string) (lines []string) {
	for line := range strings.Lines(written) {
		if line = strings.TrimRight(line, "\n"); saysWhy.MatchString(line) && len(lines) < whyLines {
			lines = append(lines, line)
		}
	}
	return lines
}

type packageReport struct {
	open                    int // pieces of work that have not ended
	passed, failed, skipped int
	seconds                 float64
	broken                  bool // a process failed beside its tests
}

type timed struct {
	test    string
	seconds float64
}

func newReport(out io.Writer, o *options) *report {
	return &report{
		begun: time.Now(), unit: o.mode == "unit", out: out,
		packages: map[string]*packageReport{}, output: map[string][]string{}, causes: map[string]string{}, skipped: map[string][]string{},
	}
}

// printf writes to the output. It ignores errors: a run whose output was closed continues, for its exit code.
func (r *report) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(r.out, format, args...)
}

func short(path string) string { return strings.TrimPrefix(path, module+"/") }

// of returns the report of a package. The caller holds mu.
func (r *report) of(pkg string) *packageReport {
	p := r.packages[short(pkg)]
	if p == nil {
		p = &packageReport{}
		r.packages[short(pkg)] = p
	}
	return p
}

// begin records that n more pieces of work on a package have begun.
func (r *report) begin(pkg string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of(pkg).open += n
}

// end records that a piece of work has ended. After the last one it prints the line of the package.
func (r *report) end(pkg string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.of(pkg)
	p.open--
	if p.open > 0 {
		return
	}
	verdict := "ok"
	if p.failed > 0 || p.broken {
		verdict = "FAIL"
	}
	r.printf("%-4s  %-26s %4d passed %3d failed %3d skipped %7.1f s\n", verdict, short(pkg), p.passed, p.failed, p.skipped, p.seconds)
}

// keep keeps a line of output until its test has ended, except for what is not the test's. The caller holds mu.
func (r *report) keep(key string, e event) {
	if e.Test == "" || !strings.HasPrefix(e.Output, "=== ") {
		r.output[key] = append(r.output[key], e.Output)
	}
}

// note records an event. reason is the reason of a skipped test.
func (r *report) note(label string, e event, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		r.keep(key, e)
		return
	case "pass", "fail", "skip":
	default:
		return
	}
	p := r.of(e.Package)
	written := r.output[key]
	delete(r.output, key)
	if e.Test == "" {
		p.seconds += e.Elapsed
		if text := strings.Join(written, ""); e.Action == "fail" && !r.explained(e.Package, text) {
			p.broken = true
			r.failures = append(r.failures, &failure{r.command(label, e), why(text)})
			r.show(label, e, written)
		}
		return
	}
	top := !strings.Contains(e.Test, "/")
	switch e.Action {
	case "fail":
		test, _, _ := strings.Cut(e.Test, "/")
		cause := e.Package + " " + test
		r.causes[cause] += strings.Join(written, "")
		if top {
			p.failed++
			r.fail(short(e.Package)+"."+e.Test, r.causes[cause], r.command(label, e))
		}
		r.show(label, e, written)
	case "skip":
		if !strings.HasPrefix(reason, notUnit) {
			r.skipped[reason] = append(r.skipped[reason], short(e.Package)+"."+e.Test)
			if top {
				p.skipped++
			}
		} else if r.unit && top {
			p.skipped++
		}
	case "pass":
		if top {
			p.passed++
			r.passed++
			r.slow = append(r.slow, timed{short(e.Package) + "." + e.Test, e.Elapsed})
		}
	}
}

// fail records the failure of a test that wrote a text. The caller holds mu.
func (r *report) fail(test, written, command string) {
	to := &r.failures
	if r.quarantine[test] && !neverQuarantined.MatchString(written) {
		to = &r.quarantined
	}
	*to = append(*to, &failure{command, why(written)})
}

// explained reports whether a failed test explains the failure of its process, which wrote a text. One in quarantine explains no more
// than its own failure: the process has come to its end, which package testing says in a line. The caller holds mu.
func (r *report) explained(pkg, written string) bool {
	if len(r.quarantined) > 0 && (neverQuarantined.MatchString(written) || !strings.Contains(written, "FAIL\n")) {
		return false
	}
	return r.of(pkg).failed > 0
}

// show prints the output of a failed test. The caller holds mu.
func (r *report) show(label string, e event, written []string) {
	name := short(e.Package)
	if e.Test != "" {
		name += "." + e.Test
	}
	r.printf("---- FAIL %s (%s, %.1f s)\n%s", name, label, e.Elapsed, strings.Join(written, ""))
	if len(written) > 0 && !strings.HasSuffix(written[len(written)-1], "\n") {
		r.printf("\n")
	}
	r.printf("     alone: %s\n", r.command(label, e))
}

// command returns the command that runs a test alone, as in the process with this label.
func (r *report) command(label string, e event) string {
	target := "sudo make test"
	if r.unit {
		target = "make test-unit"
	}
	line := target + " PKG=./" + short(e.Package)
	if e.Test != "" {
		line += " RUN='^" + strings.ReplaceAll(e.Test, "/", "$/^") + "$'"
	}
	if strings.HasSuffix(label, raceLabel) {
		line += " RACE=1"
	}
	return line
}

// broken records that a test process could not be run.
func (r *report) broken(b batch, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of(b.pkg.path).broken = true
	r.failures = append(r.failures, &failure{"sudo make test PKG=./" + b.pkg.short(), []string{err.Error()}})
	r.printf("---- FAIL %s (%s): %v\n", b.pkg.short(), b.phase, err)
}

// other reports on a command that is not a package: its output, and how to run it alone.
func (r *report) other(name, command, written string, err error, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	verdict := "ok"
	if err != nil {
		verdict = "FAIL"
		r.failures = append(r.failures, &failure{"sudo " + command, why(written)})
		written += "\n" + err.Error()
	}
	for line := range strings.Lines(written) {
		r.printf("%s: %s", name, line)
	}
	r.printf("\n%-4s  %-26s %53.1f s\n", verdict, name, took.Seconds())
}

func (r *report) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures)+len(r.quarantined) > 0
}

// finish prints the summary and reports whether all tests passed.
func (r *report) finish() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	skipped := 0
	if len(r.skipped) > 0 {
		r.printf("\nskipped:\n")
		reasons := make([]string, 0, len(r.skipped))
		for reason, tests := range r.skipped {
			reasons = append(reasons, reason)
			skipped += len(tests)
		}
		slices.Sort(reasons)
		for _, reason := range reasons {
			tests := r.skipped[reason]
			slices.Sort(tests)
			more := ""
			if len(tests) > 4 {
				more = fmt.Sprintf(" and %d more", len(tests)-4)
				tests = tests[:4]
			}
			r.printf("  %s: %s%s\n", reason, strings.Join(tests, ", "), more)
		}
	}
	slices.SortFunc(r.slow, func(a, b timed) int { return int((b.seconds - a.seconds) * 1000) })
	r.printf("\nslowest:\n")
	for _, t := range r.slow[:min(10, len(r.slow))] {
		r.printf("  %6.1f s  %s\n", t.seconds, t.test)
	}
	r.list("failed, and quarantined in "+quarantineList, r.quarantined)
	r.list("failed, and how to run each alone", r.failures)
	known := ""
	if n := len(r.quarantined); n > 0 {
		known = fmt.Sprintf(", %d failed in quarantine", n)
	}
	r.printf("\n%d passed, %d failed%s, %d skipped in %.0f s\n", r.passed, len(r.failures), known, skipped, time.Since(r.begun).Seconds())
	return len(r.failures) == 0
}

// list prints failures. The caller holds mu.
func (r *report) list(title string, failures []*failure) {
	if len(failures) == 0 {
		return
	}
	r.printf("\n%s:\n", title)
	for _, f := range failures {
		r.printf("  %s\n", f.command)
		for _, line := range f.lines {
			r.printf("      %s\n", strings.TrimSpace(line))
		}
	}
}
