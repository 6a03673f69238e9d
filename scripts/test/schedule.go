package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	goEnvironment []string // what go keeps in a home directory, which test machines have none of
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

// all runs what the options ask for.
func (r *runner) all(ctx context.Context, list []testPackage) error {
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
	r.known = map[string]testPackage{}
	for _, p := range list {
		r.known[p.path] = p
	}
	if r.mode == "unit" {
		for _, p := range list {
			r.report.begin(p.path, 1)
		}
		return r.goTest(ctx, unitPhase, r.run, list, func(p testPackage, _ []string) { r.report.end(p.path) })
	}
	var raced, binaries []testPackage
	for _, p := range list {
		r.report.begin(p.path, 1)
		if r.cover == "" && p.raced() {
			raced = append(raced, p)
		}
		if r.cover != "" || !p.raced() || p.machine {
			binaries = append(binaries, p)
		}
	}
	q := newQueue(r.jobs)
	err = r.build(ctx, binaries, func(p testPackage) {
		if r.cover != "" || !p.raced() {
			r.unitThenMachine(ctx, q, p)
		}
	})
	if err != nil {
		q.wait() // for what was built before
		return err
	}
	// The tests that run now wait for programs most of the time; so there is work for the compiler and the guest.
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

// unitThenMachine runs the unit tests of a package, and what these leave to machine tests.
func (r *runner) unitThenMachine(ctx context.Context, q *queue, p testPackage) {
	q.add(batch{pkg: p, phase: unitPhase, weight: 1000}, func(b batch) {
		r.machineTests(ctx, q, p, r.runBatch(ctx, b))
		r.report.end(p.path)
	})
}

// race runs the unit tests of packages with the race detector, and has their machine tests run without it. Then it runs
// those other tests of all packages whose goroutines are worth a look.
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

// kernelLine is what the guest's kernel writes to its console, among what tests write: of jobs that it ended, mostly.
var kernelLine = regexp.MustCompile(`(?m)^\[ *[0-9]+\.[0-9]+\] .*\n`)

// guestNice gives the guest about half of the processors beside the test machines, which are cgroups with a share each. It
// is the longest of all that runs, uses one processor and a half, and has tests that wait.
const guestNice = "-7"

// runGuest runs a selection of the machine tests in a guest with pure cgroup v2, from the binaries that are built.
func (r *runner) runGuest(ctx context.Context) {
	const script = "scripts/test-vm"
	cmd := r.command(ctx, script, "--bin", filepath.Join(r.cache, "bin"))
	// Processes of a session are scheduled as one group, whose nice value is its own (sched(7), autogroup).
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) } // the emulator, too
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	begun := time.Now()
	err := cmd.Start()
	if err == nil {
		// A kernel without these groups has no such file, and the guest no advantage.
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
	if r.cover == "" && p.raced() && !p.machine { // something that the tests import needs the machine
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

// build builds the test binaries of packages without the race detector, and calls built for each.
func (r *runner) build(ctx context.Context, list []testPackage, built func(testPackage)) error {
	if len(list) == 0 {
		return nil
	}
	dir := filepath.Join(r.cache, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// `go test -c` builds many packages at once, but names a binary by the last element of its path. Those that share
	// one are built in another go.
	for len(list) > 0 {
		names := map[string]bool{}
		var now, later []testPackage
		for _, p := range list {
			if name := filepath.Base(p.path); names[name] {
				later = append(later, p)
			} else {
				names[name] = true
				now = append(now, p)
			}
		}
		list = later
		temp, err := os.MkdirTemp(r.cache, "build-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temp) //nolint:errcheck // it lies in a directory for such things
		args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", temp + "/"}, buildFlags()...)
		if r.cover != "" {
			args = append(args, "-cover", "-covermode=atomic")
		}
		for _, p := range now {
			args = append(args, p.path)
		}
		cmd := r.command(ctx, "go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go test -c: %w\n%s", err, out)
		}
		for _, p := range now {
			if err := os.Rename(filepath.Join(temp, filepath.Base(p.path)+".test"), r.binary(p)); err != nil {
				return err
			}
			built(p)
		}
	}
	return nil
}

func (r *runner) binary(p testPackage) string { return filepath.Join(r.cache, "bin", p.binary()) }

// command is one that a signal to the run ends with SIGTERM: test machines then clear what is theirs.
func (r *runner) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	return cmd
}

// environment is that of a test process. What it says of corral is said by the run alone.
func (r *runner) environment(phase string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "CORRAL_") && !strings.HasPrefix(v, "CORRAL_TEST_SLOW=")
	})
	env = append(env, "CORRAL_TEST_PHASE="+phase)
	if r.root {
		env = append(env, "CORRAL_REQUIRE=1")
	}
	if r.mode == "soak" {
		env = append(env, "CORRAL_TEST_SOAK=1")
	}
	return env
}

// goTest runs tests by `go test`, which runs a package while it builds the next: with the race detector, but in a unit
// run. done is called for each package, with the machine tests that it left out.
func (r *runner) goTest(ctx context.Context, phase, choice string, list []testPackage, done func(testPackage, []string)) error {
	args := append([]string{"test", "-json", "-vet=off", "-ldflags=-s -w", "-timeout", r.timeout.String()}, buildFlags()...)
	packages := map[string]testPackage{}
	if choice != "" {
		args = append(args, "-run", choice)
	}
	env := r.environment(phase)
	if r.mode == "unit" {
		args = append(args, "-short")
	} else {
		args = append(args, "-race", "-count=1")
		env = append(env, "CGO_ENABLED=1")
	}
	if r.root {
		dir, remove, err := r.machineDir()
		if err != nil {
			return err
		}
		defer remove()
		self, err := os.Executable()
		if err != nil {
			return err
		}
		// Each process has a directory of its own in it, by the shell's process id.
		wrapper := filepath.Join(dir, "exec")
		script := fmt.Sprintf("#!/bin/sh\nmkdir %[1]s/$$ && exec %[2]s %[3]s %[1]s/$$ \"$@\"\n", dir, self, enterCommand)
		if err := os.WriteFile(wrapper, []byte(script), 0o755); err != nil {
			return err
		}
		args = append(args, "-exec", wrapper)
		env = append(env, r.goEnvironment...)
	}
	for _, p := range list {
		args = append(args, p.path)
		packages[p.path] = p
	}
	cmd := r.command(ctx, "go", args...)
	cmd.Env = env
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	label := phase
	if r.mode != "unit" {
		label += ", race detector"
	}
	machine := map[string][]string{}
	r.events(out, label, func(e event, reason string) {
		machine[e.Package] = leftOut(machine[e.Package], e, reason)
		if e.Test == "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip") {
			done(packages[e.Package], machine[e.Package])
		}
	})
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && (!errors.As(err, &exit) || !r.report.failed()) {
		return fmt.Errorf("go test: %w", err) // else the report has it
	}
	return nil
}

// machineDir makes a directory for the files of test machines. Other users pass through it.
func (r *runner) machineDir() (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("/var/tmp", "corral-tests-")
	if err != nil {
		return "", nil, err
	}
	return dir, func() { _ = os.RemoveAll(dir) }, os.Chmod(dir, 0o755)
}

// runBatch runs a test process and returns the machine tests that it left out.
func (r *runner) runBatch(ctx context.Context, b batch) (machine []string) {
	fail := func(err error) []string {
		if ctx.Err() == nil {
			r.report.broken(b, err)
		}
		return machine
	}
	dir, remove, err := r.machineDir()
	if err != nil {
		return fail(err)
	}
	defer remove()
	self, err := os.Executable()
	if err != nil {
		return fail(err)
	}
	args := []string{
		"-t", "-p", b.pkg.path, self, enterCommand, dir, r.binary(b.pkg),
		"-test.v=test2json", "-test.paniconexit0", "-test.timeout=" + r.timeout.String(),
	}
	switch {
	case len(b.tests) > 0:
		args = append(args, "-test.run=^("+strings.Join(b.tests, "|")+")$")
	case r.run != "":
		args = append(args, "-test.run="+r.run)
	}
	if b.phase == machinePhase && strings.Contains(r.run, "/") {
		_, sub, _ := strings.Cut(r.run, "/") // subtests of tests that were found by the first part
		args[len(args)-1] += "/" + sub
	}
	profile := filepath.Join(dir, "profile")
	if r.cover != "" {
		args = append(args, "-test.coverprofile="+profile)
	}
	cmd := r.command(ctx, r.test2json, args...)
	cmd.Dir = b.pkg.dir
	cmd.Env = append(r.environment(b.phase), r.goEnvironment...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fail(err)
	}
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	r.events(out, b.phase, func(e event, reason string) {
		machine = leftOut(machine, e, reason)
		if b.phase == machinePhase && e.Test != "" && !strings.Contains(e.Test, "/") && (e.Action == "pass" || e.Action == "fail") {
			r.times.add(b.pkg, e.Test, e.Elapsed)
		}
	})
	err = cmd.Wait()
	r.report.spent(b, cmd.ProcessState)
	if err != nil && ctx.Err() == nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return fail(err)
		}
	}
	if r.cover != "" {
		if err := r.profiles.add(profile); err != nil {
			return fail(err)
		}
	}
	return machine
}

// leftOut adds the test of an event to a list of machine tests, if it skipped itself for being one.
func leftOut(list []string, e event, reason string) []string {
	top, _, _ := strings.Cut(e.Test, "/")
	if e.Action == "skip" && e.Test != "" && strings.HasPrefix(reason, notUnit) && !slices.Contains(list, top) {
		list = append(list, top)
	}
	return list
}

// An event is one line of test2json, see `go doc test2json`.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// reasonLine is what t.Skip writes: "    file_test.go:12: reason".
var reasonLine = regexp.MustCompile(`^\s*[\w.-]+\.go:\d+: (.*)`)

// events reads a stream of events, has the report note each, and calls see with it and, for a test that was skipped,
// its reason.
func (r *runner) events(from io.Reader, label string, see func(e event, reason string)) {
	reasons := map[string]string{}
	lines := bufio.NewReaderSize(from, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(os.Stderr, "%s", line) // go's own words, of a build that failed for example
			} else {
				key := e.Package + " " + e.Test
				if m := reasonLine.FindStringSubmatch(e.Output); e.Action == "output" && m != nil {
					reasons[key] = m[1]
				}
				r.report.note(label, e, reasons[key])
				see(e, reasons[key])
				if e.Action == "pass" || e.Action == "fail" || e.Action == "skip" {
					delete(reasons, key)
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// A queue runs batches, the longest first, so many at a time.
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
