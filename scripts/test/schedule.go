package main

import (
	"bytes"
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
	known  map[string]testPackage // by path
	root   bool                   // test processes have machines of their own

	test2json     string
	goEnvironment []string // locations of go's caches, which are in a home directory that test machines lack
	profiles      profiles
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
	tests  []string // names of top-level tests; none: all
	weight float64  // expected seconds
}

// all runs the tests that the options select.
func (r *runner) all(ctx context.Context, list []testPackage) error {
	if err := r.findGo(ctx); err != nil {
		return err
	}
	r.known = map[string]testPackage{}
	for _, p := range list {
		r.known[p.path] = p
		r.report.begin(p.path, 1)
	}
	if r.mode == "unit" {
		return r.goTest(ctx, unitPhase, r.run, list, func(p testPackage, _ []string) { r.report.end(p.path) })
	}
	var raced, binaries []testPackage
	for _, p := range list {
		if r.cover == "" && p.raced() {
			raced = append(raced, p)
		}
		if r.cover != "" || !p.raced() || p.machine {
			binaries = append(binaries, p)
		}
	}
	q := newQueue(r.jobs)
	err := r.build(ctx, binaries, func(p testPackage) {
		if r.cover != "" || !p.raced() {
			r.unitThenMachine(ctx, q, p)
		}
	})
	if err != nil {
		q.wait() // for the packages that were built before
		return err
	}
	// The tests that run now wait for programs most of the time, which leaves processors to the compiler and the guest.
	var beside sync.WaitGroup
	var raceErr error
	beside.Go(func() { raceErr = r.race(ctx, q, raced, list) })
	if r.guest {
		beside.Go(func() { r.runGuest(ctx) })
	}
	beside.Wait()
	q.wait()
	if r.mode == "all" && r.cover == "" && !r.strict {
		r.again(ctx)
	}
	if r.cover != "" {
		err = r.profiles.write(r.cover, os.Stdout)
	}
	return errors.Join(err, raceErr, ctx.Err())
}

// findGo finds test2json and the environment that go needs in a machine without a home directory.
func (r *runner) findGo(ctx context.Context) error {
	tool, err := exec.CommandContext(ctx, "go", "tool", "-n", "test2json").Output()
	if err != nil {
		return fmt.Errorf("go tool test2json: %w", err)
	}
	r.test2json = strings.TrimSpace(string(tool))
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
func (r *runner) unitThenMachine(ctx context.Context, q *queue, p testPackage) {
	q.add(batch{pkg: p, phase: unitPhase, weight: 1000}, func(b batch) {
		r.machineTests(ctx, q, p, r.runBatch(ctx, b))
		r.report.end(p.path)
	})
}

// race runs the unit tests of packages with the race detector, and queues their machine tests without it. Then it runs,
// with the race detector, the machine tests of all packages that raceToo selects.
func (r *runner) race(ctx context.Context, q *queue, raced, all []testPackage) error {
	if len(raced) == 0 {
		return nil
	}
	err := r.goTest(ctx, unitPhase, r.run, raced, func(p testPackage, machine []string) {
		r.machineTests(ctx, q, p, machine)
		r.report.end(p.path)
	})
	if r.run != "" {
		return err // a choice of tests runs once
	}
	for _, p := range all {
		tests := raceToo[p.short()]
		if r.mode == "soak" && (tests != "" || p.raced() && p.machine) {
			tests = "."
		}
		if tests != "" {
			r.report.begin(p.path, 1)
			err = errors.Join(err, r.goTest(ctx, machinePhase, tests, []testPackage{p}, func(p testPackage, _ []string) { r.report.end(p.path) }))
		}
	}
	return err
}

// kernelLine matches messages of the guest's kernel on its console, amid the output of tests: mostly jobs that it killed.
var kernelLine = regexp.MustCompile(`(?m)^\[ *[0-9]+\.[0-9]+\] .*\n`)

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

// machineTests divides the machine tests of a package into batches of about equal length.
func (r *runner) machineTests(ctx context.Context, q *queue, p testPackage, tests []string) {
	if len(tests) == 0 {
		return
	}
	if r.cover == "" && p.raced() && !p.machine { // a package that the tests import needs the machine
		if err := r.build(ctx, []testPackage{p}, func(testPackage) {}); err != nil {
			r.report.broken(batch{pkg: p, phase: machinePhase}, err)
			return
		}
	}
	batches := r.times.divide(p, tests)
	r.report.begin(p.path, len(batches))
	for _, b := range batches {
		b.phase = machinePhase
		q.add(b, func(b batch) {
			r.runBatch(ctx, b)
			r.report.end(p.path)
		})
	}
}

// A queue runs batches, the longest first, at most limit at a time.
type queue struct {
	mu      sync.Mutex
	waiting []queued // guarded by mu
	running int      // guarded by mu
	limit   int
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
