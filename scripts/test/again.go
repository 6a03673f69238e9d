package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

// maxAgain is how many failures of a run are tried again. More are no accident.
const maxAgain = 4

// notAgain matches what is never a matter of time: a data race, a crash, something that a job has left.
var notAgain = regexp.MustCompile(`DATA RACE|(?m:^(panic|fatal error): )|left on the machine: `)

// again runs each of a few failed tests once more when nothing runs beside it. Two processors and an emulator beside some
// twenty processes make each bound of time in a test too short at some time. A test that passes alone does not fail the run,
// but the summary names it with the reason of its failure, for it is the test that has to be mended; -strict fails for it, too.
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

// passesAlone runs what failed, with a report of its own.
func (r *runner) passesAlone(ctx context.Context, f *failure) bool {
	alone := &runner{options: r.options, times: r.times, root: r.root, test2json: r.test2json, goEnvironment: r.goEnvironment}
	alone.report = newReport(r.report.out, r.options)
	if f.pkg == "" {
		alone.runGuest(ctx)
		return !alone.report.failed()
	}
	pkg := r.known[f.pkg]
	if err := r.build(ctx, []testPackage{pkg}, func(testPackage) {}); err != nil {
		r.report.printf("%v\n", err)
		return false
	}
	alone.runBatch(ctx, batch{pkg: pkg, phase: machinePhase, tests: []string{f.test}})
	return !alone.report.failed() && alone.report.passed == 1
}

// accidents returns the failures that are tried again: all of the run's, or none.
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

// forgive moves a failure to those that have passed alone.
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

// sum is the last line of a run.
func (r *report) sum(skipped int, seconds float64) string {
	more := ""
	if n := len(r.forgiven); n > 0 {
		more = fmt.Sprintf(", %d passed alone", n)
	}
	return fmt.Sprintf("%d passed, %d failed%s, %d skipped in %.0f s", r.passed, len(r.failures), more, skipped, seconds)
}
