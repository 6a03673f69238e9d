package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

// maxAgain is the maximum number of failures of a run that are retried. More are not caused by load.
const maxAgain = 4

// notAgain matches failures that are never caused by load: a data race, a crash, leftovers on the machine.
var notAgain = regexp.MustCompile(`DATA RACE|(?m:^(panic|fatal error): )|left on the machine: `)

// again runs each of a few failed tests once more with nothing in parallel. On two processors, with an emulator and some
// twenty processes, every bound of time in a test is too short at some point. A test that passes alone does not fail the
// run, but the summary names it with the reason of its failure, because it has to be fixed; with -strict it fails the run.
func (r *runner) again(ctx context.Context) {
	failed := r.report.accidents()
	for _, f := range failed {
		if ctx.Err() != nil {
			return
		}
		r.report.printf("\n---- once more, alone: %s\n", f.command)
		if r.passesAlone(ctx, f) {
			r.report.forgive(f)
		}
	}
}

// passesAlone runs a failed test alone, with a separate report.
func (r *runner) passesAlone(ctx context.Context, f *failure) bool {
	alone := &runner{options: r.options, times: r.times, root: r.root, test2json: r.test2json, goEnvironment: r.goEnvironment}
	alone.report = newReport(r.report.out, r.options)
	if f.pkg == "" {
		alone.runGuest(ctx)
		return !alone.report.failed()
	}
	pkg := r.known[f.pkg]
	if err := r.build(ctx, []testPackage{pkg}, false, func(testPackage) {}); err != nil {
		r.report.printf("%v\n", err)
		return false
	}
	alone.runBatch(ctx, batch{pkg: pkg, phase: machinePhase, tests: []string{f.test}})
	return !alone.report.failed() && alone.report.passed == 1
}

// accidents returns the failures to retry: all of the run, or none.
func (r *report) accidents() (list []*failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failures) > maxAgain {
		return nil
	}
	for _, f := range r.failures {
		if !f.accident {
			return nil
		}
		list = append(list, f)
	}
	return list
}

// forgive moves a failure to the list of those that passed alone.
func (r *report) forgive(f *failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, other := range r.failures {
		if other == f {
			r.failures = append(r.failures[:i:i], r.failures[i+1:]...)
			r.forgiven = append(r.forgiven, f)
			return
		}
	}
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

// sum returns the last line of a run.
func (r *report) sum(skipped int, seconds float64) string {
	more := ""
	if n := len(r.forgiven); n > 0 {
		more = fmt.Sprintf(", %d passed alone", n)
	}
	return fmt.Sprintf("%d passed, %d failed%s, %d skipped in %.0f s", r.passed, len(r.failures), more, skipped, seconds)
}
