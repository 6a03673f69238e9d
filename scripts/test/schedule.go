package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A runner runs tests.
type runner struct {
	*options
	report *report
	times  *times
	root   bool // test processes have machines of their own

	test2json     string
	goEnvironment []string      // locations of go's caches, which are in a home directory that test machines lack
	coverDir      string        // see makeCoverDir
	built         chan struct{} // closed when the test binaries without the race detector are built
}

// Phases of a run, as package sandboxtest reads them from CORRAL_TEST_PHASE.
const (
	unitPhase    = "unit"    // a test that needs the machine skips itself, with a reason that begins with notUnit
	machinePhase = "machine" // all tests run
)

// notUnit begins the reason of a test that skipped itself for being a machine test.
const notUnit = "not a unit test: "

// A batch is one test process: some tests of one package.
type batch struct {
	pkg    testPackage
	phase  string
	race   bool     // with the race detector
	tests  []string // names of top-level tests; none: all
	choice string   // a regular expression for names of tests, if tests is empty; "" for those of the run
	weight float64  // expected seconds
}

// all runs the tests that the options select.
func (r *runner) all(ctx context.Context, list []testPackage) error {
	if err := r.findGo(ctx); err != nil {
		return err
	}
	for _, p := range list {
		r.report.begin(p.path, 1)
	}
	if r.mode == "unit" {
		return r.goTest(ctx, unitPhase, r.run, list, func(p testPackage, _ []string) { r.report.end(p.path) })
	}
	// Those with the detector are built and begin in this order: their long machine tests are not to be the last.
	slices.SortStableFunc(list, func(a, b testPackage) int { return cmp.Compare(r.times.sum(b), r.times.sum(a)) })
	var raced, binaries []testPackage
	for _, p := range list {
		if r.detector && p.raced() {
			raced = append(raced, p)
		}
		if !r.detector || !p.raced() || p.machine {
			binaries = append(binaries, p)
		}
	}
	if r.cover != "" {
		var err error
		if r.coverDir, err = makeCoverDir(); err != nil {
			return err
		}
		defer os.RemoveAll(r.coverDir) //nolint:errcheck // nothing reads it any more
	}
	q := newQueue(r.jobs)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var beside sync.WaitGroup
	var raceErr error
	race := func() { raceErr = r.race(ctx, q, raced) }
	r.built = make(chan struct{})
	if !r.guest { // one linker keeps one processor busy, and of few packages both binaries are linked at once
		beside.Go(race)
	}
	err := r.buildInOrder(ctx, q, &beside, binaries)
	if err != nil {
		cancel()
	}
	close(r.built)
	// The tests that run now wait for programs most of the time, which leaves processors to the compiler and the guest.
	if r.guest && err == nil {
		beside.Go(race)
	}
	beside.Wait()
	q.wait()
	if err != nil {
		return err
	}
	if r.cover != "" {
		err = writeProfile(ctx, r.coverDir, r.cover, os.Stdout)
	}
	return errors.Join(err, raceErr, ctx.Err())
}

// buildInOrder builds test binaries and queues the tests of packages without the race detector. The guest takes longest of all, and
// begins as soon as its packages are built; the packages whose tests take longest are built together with those.
func (r *runner) buildInOrder(ctx context.Context, q *queue, beside *sync.WaitGroup, list []testPackage) error {
	built := func(p testPackage) {
		if !r.detector || !p.raced() {
			r.unitThenMachine(ctx, q, p, false)
		}
	}
	early, later, err := r.early(list)
	if err == nil {
		err = r.build(ctx, early, false, built)
	}
	if err != nil {
		return err
	}
	if r.guest {
		beside.Go(func() {
			r.runGuest(ctx)
			q.widen(r.after)
		})
	}
	return r.build(ctx, later, false, built)
}

// longSeconds is how long the machine tests of a package take if it is built early.
const longSeconds = 40

// early divides packages into those to build first and the others.
func (r *runner) early(list []testPackage) (early, later []testPackage, err error) {
	selection, err := os.ReadFile(guestSelection)
	if err != nil {
		return nil, nil, err
	}
	inGuest := map[string]bool{}
	for line := range strings.Lines(string(selection)) {
		if f := strings.Fields(line); r.guest && len(f) > 0 && !strings.HasPrefix(f[0], "#") {
			inGuest[f[0]] = true
		}
	}
	for _, p := range list {
		if inGuest[p.short()] || r.times.sum(p) >= longSeconds {
			early = append(early, p)
		} else {
			later = append(later, p)
		}
	}
	return early, later, nil
}

// findGo builds test2json and finds the environment that go needs in a machine without a home directory.
func (r *runner) findGo(ctx context.Context) error {
	// `go tool` would build it with other flags, and so compile what it imports once more.
	r.test2json = filepath.Join(r.cache, "test2json")
	args := append(append([]string{"build"}, compileFlags()...), "-o", r.test2json, "cmd/test2json")
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("go build cmd/test2json: %w\n%s", err, out)
	}
	names := []string{"GOCACHE", "GOMODCACHE", "GOPATH"}
	values, err := exec.CommandContext(ctx, "go", append([]string{"env"}, names...)...).Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	for i, value := range strings.Split(strings.TrimSpace(string(values)), "\n") {
		r.goEnvironment = append(r.goEnvironment, names[i]+"="+value)
	}
	return nil
}

// unitThenMachine runs the unit tests of a package, and then its tests that skipped themselves there.
func (r *runner) unitThenMachine(ctx context.Context, q *queue, p testPackage, race bool) {
	q.add(batch{pkg: p, phase: unitPhase, race: race, weight: 1000}, func(b batch) {
		machine := r.runBatch(ctx, b)
		if race {
			<-r.built
		}
		r.machineTests(ctx, q, p, machine)
		r.report.end(p.path)
	})
}

// race runs the unit tests of packages with the race detector, and queues their machine tests. Packages whose machine
// tests run with the race detector, too, have a binary for both.
func (r *runner) race(ctx context.Context, q *queue, raced []testPackage) error {
	var both, units []testPackage
	for _, p := range raced {
		if r.raceChoice(p) != "" {
			both = append(both, p)
		} else {
			units = append(units, p)
		}
	}
	err := r.build(ctx, both, true, func(p testPackage) { r.unitThenMachine(ctx, q, p, true) })
	if err != nil || len(units) == 0 {
		return err
	}
	return r.goTest(ctx, unitPhase, r.run, units, func(p testPackage, machine []string) {
		<-r.built
		r.machineTests(ctx, q, p, machine)
		r.report.end(p.path)
	})
}

// raceChoice returns a regular expression for the machine tests of a package that run with the race detector, "" for none. In a run
// of some tests, these are all that were chosen.
func (r *runner) raceChoice(p testPackage) string {
	tests := raceToo[p.short()]
	switch {
	case !r.detector:
		return ""
	case (r.mode == "soak" || r.run != "") && (tests != "" || p.raced() && p.machine):
		return "."
	}
	return tests
}

// kernelLine matches messages of the guest's kernel on its console, amid the output of tests: mostly jobs that it killed.
var kernelLine = regexp.MustCompile(`(?m)^\[ *[0-9]+\.[0-9]+\] .*\n`)

// guestSelection lists what runs in the guest.
const guestSelection = "scripts/vm/selection"

// guestNice gives the guest about half of the processors beside the test machines, which are cgroups with a share each. The
// guest takes longest of all, uses one and a half processors, and has tests that wait.
const guestNice = "-7"

// runGuest runs a selection of the machine tests in a guest with pure cgroup v2, with the binaries of this build.
func (r *runner) runGuest(ctx context.Context) {
	const script = "scripts/test-vm"
	cmd := r.command(ctx, script, "--bin", filepath.Join(r.cache, "bin"))
	// Processes of a session are scheduled as one group with a nice value of its own (sched(7), autogroup).
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) } // the emulator, too
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	begun := time.Now()
	err := cmd.Start()
	if err == nil {
		// A kernel without these groups lacks the file; then the guest runs without the advantage.
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid), []byte(guestNice), 0)
		err = cmd.Wait()
	}
	r.report.other("guest", script, strings.TrimSpace(kernelLine.ReplaceAllString(out.String(), "")), err, time.Since(begun))
}

// machineTests divides the machine tests of a package into batches of about equal length and queues them.
func (r *runner) machineTests(ctx context.Context, q *queue, p testPackage, tests []string) {
	batches, err := r.machineBatches(ctx, p, tests)
	if err != nil {
		r.report.broken(batch{pkg: p, phase: machinePhase}, err)
	}
	r.report.begin(p.path, len(batches))
	for _, b := range batches {
		b.phase = machinePhase
		q.add(b, func(b batch) {
			r.runBatch(ctx, b)
			r.report.end(p.path)
		})
	}
}

// machineBatches returns the batches of a package's machine tests, and builds the binaries that are missing for them. A test
// that runs with the race detector does not run without it, too, except in a soak: the detector only adds to what it proves.
func (r *runner) machineBatches(ctx context.Context, p testPackage, tests []string) ([]batch, error) {
	var list []batch
	choice := r.raceChoice(p)
	switch {
	case choice == "":
	case p.raced(): // its binary has run the unit tests
		raced, others := divideRaced(choice, tests)
		for _, b := range r.times.divide(p, raced) {
			b.race = true
			list = append(list, b)
		}
		if r.mode != "soak" {
			tests = others
		}
	default: // its unit tests have run without the race detector
		if err := r.build(ctx, []testPackage{p}, true, func(testPackage) {}); err != nil {
			return nil, err
		}
		list = append(list, batch{pkg: p, race: true, choice: cmp.Or(r.run, choice), weight: batchSeconds})
	}
	if len(tests) > 0 && r.detector && p.raced() && !p.machine { // a package that the tests import needs the machine
		if err := r.build(ctx, []testPackage{p}, false, func(testPackage) {}); err != nil {
			return nil, err
		}
	}
	return append(list, r.times.divide(p, tests)...), nil
}

// divideRaced divides names of tests into those that a regular expression matches, and the others.
func divideRaced(choice string, tests []string) (raced, others []string) {
	match := regexp.MustCompile(choice) // from raceToo
	for _, t := range tests {
		if match.MatchString(t) {
			raced = append(raced, t)
		} else {
			others = append(others, t)
		}
	}
	return raced, others
}

// A queue runs batches, the longest first, at most limit at a time.
type queue struct {
	mu      sync.Mutex
	waiting []queued // guarded by mu
	running int      // guarded by mu
	limit   int      // guarded by mu
	all     sync.WaitGroup
}

type queued struct {
	batch
	run func(batch)
}

func newQueue(limit int) *queue { return &queue{limit: limit} }

// add puts a batch into the queue. What runs may add more.
func (q *queue) add(b batch, run func(batch)) {
	q.all.Add(1)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, queued{b, run})
	q.next()
}

// widen lets as many batches run at a time, and starts them.
func (q *queue) widen(limit int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.limit = limit
	q.next()
}

// next starts what may run. The caller holds mu.
func (q *queue) next() {
	for q.running < q.limit && len(q.waiting) > 0 {
		longest := 0
		for i, w := range q.waiting {
			if w.weight > q.waiting[longest].weight {
				longest = i
			}
		}
		w := q.waiting[longest]
		q.waiting = slices.Delete(q.waiting, longest, longest+1)
		q.running++
		go func() {
			defer q.all.Done()
			w.run(w.batch)
			q.mu.Lock()
			defer q.mu.Unlock()
			q.running--
			q.next()
		}()
	}
}

func (q *queue) wait() { q.all.Wait() }
