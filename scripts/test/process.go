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
	"syscall"
	"time"
)

// command returns a command that is sent SIGTERM when the run is interrupted, so that test machines can clean up.
func (r *runner) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	return cmd
}

// environment returns the environment of a test process. Of the variables of corral, it has only those that the run sets.
func (r *runner) environment(phase string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "CORRAL_") && !strings.HasPrefix(v, "CORRAL_TEST_SLOW=")
	})
	env = append(env, "CORRAL_TEST_PHASE="+phase, "CORRAL_TEST_CACHE="+r.cache)
	if r.root {
		env = append(env, "CORRAL_REQUIRE=1")
	}
	if r.mode == "soak" {
		env = append(env, "CORRAL_TEST_SOAK=1")
	}
	return env
}

// goTest runs tests by `go test`, which runs a package while it builds the next: with the race detector, except in a unit
// run. It calls done for each package, with the machine tests that skipped themselves.
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
		args = append(append(args, raceFlags()...), "-count=1")
		env = append(env, "CGO_ENABLED=1")
	}
	if r.root {
		dir, remove, err := r.machineDir()
		if err != nil {
			return err
		}
		defer remove()
		wrapper, err := writeWrapper(dir)
		if err != nil {
			return err
		}
		args = append(args, "-exec", wrapper)
		env = append(append(env, r.goEnvironment...), compilerGOGC)
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
	machine := map[string][]string{}
	r.events(out, label(phase, r.mode != "unit"), func(e event, reason string) {
		machine[e.Package] = leftOut(machine[e.Package], e, reason)
		if e.Test == "" && e.isEnd() {
			done(packages[e.Package], machine[e.Package])
		}
	})
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && (!errors.As(err, &exit) || !r.report.failed()) {
		return fmt.Errorf("go test: %w", err) // any other failure is in the report
	}
	return nil
}

// writeWrapper writes a script for -exec into dir and returns its path. The script runs a test process in a machine of its
// own, with a directory in dir that other users can pass through. A process id would not do as its name: a run under load uses all of them.
func writeWrapper(dir string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	wrapper := filepath.Join(dir, "exec")
	script := fmt.Sprintf("#!/bin/sh\nunset GOGC # it is the compiler's\ndir=$(mktemp -d %[1]s/XXXXXX) && chmod 755 \"$dir\" && exec %[2]s %[3]s \"$dir\" \"$@\"\n", dir, self, enterCommand)
	return wrapper, os.WriteFile(wrapper, []byte(script), 0o755)
}

// machineDir makes a directory for the files of test machines, which other users can pass through.
func (r *runner) machineDir() (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("/var/tmp", "corral-tests-")
	if err != nil {
		return "", nil, err
	}
	return dir, func() { _ = os.RemoveAll(dir) }, os.Chmod(dir, 0o755)
}

// runBatch runs a test process and returns the machine tests that skipped themselves.
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
	args := append([]string{"-t", "-p", b.pkg.path, self, enterCommand, dir, r.binary(b.pkg, b.race)}, r.binaryFlags(b)...)
	cmd := r.command(ctx, r.test2json, args...)
	cmd.Dir = b.pkg.dir
	cmd.Env = append(r.environment(b.phase), r.goEnvironment...)
	if r.cover != "" {
		cmd.Env = append(cmd.Env, "GOCOVERDIR="+r.coverDir)
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fail(err)
	}
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	r.events(out, label(b.phase, b.race), func(e event, reason string) {
		machine = leftOut(machine, e, reason)
		if b.phase == machinePhase && e.Test != "" && !strings.Contains(e.Test, "/") && e.isEnd() && e.Action != "skip" {
			r.times.add(b.pkg, e.Test, e.Elapsed)
		}
	})
	err = cmd.Wait()
	if err != nil && ctx.Err() == nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return fail(err)
		}
	}
	return machine
}

// raceLabel ends the label of a process with the race detector.
const raceLabel = ", race detector"

// label says in the report how a test process ran.
func label(phase string, race bool) string {
	if race {
		return phase + raceLabel
	}
	return phase
}

// binaryFlags returns the flags of a test binary for the tests of a batch.
func (r *runner) binaryFlags(b batch) []string {
	flags := []string{"-test.v=test2json", "-test.paniconexit0", "-test.timeout=" + r.timeout.String()}
	switch {
	case len(b.tests) > 0:
		flags = append(flags, "-test.run=^("+strings.Join(b.tests, "|")+")$")
	case b.choice != "":
		flags = append(flags, "-test.run="+b.choice)
	case r.run != "":
		flags = append(flags, "-test.run="+r.run)
	}
	if b.phase == machinePhase && strings.Contains(r.run, "/") {
		_, sub, _ := strings.Cut(r.run, "/") // subtests of the tests that the first part has found
		flags[len(flags)-1] += "/" + sub
	}
	if r.cover != "" {
		flags = append(flags, "-test.gocoverdir="+r.coverDir)
	}
	return flags
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

// isEnd reports whether a test or a package has ended.
func (e event) isEnd() bool { return e.Action == "pass" || e.Action == "fail" || e.Action == "skip" }

// reasonLine matches the output of t.Skip: "    file_test.go:12: reason".
var reasonLine = regexp.MustCompile(`^\s*[\w.-]+\.go:\d+: (.*)`)

// events reads a stream of events. It records each in the report, and calls see with it and, for a test that was skipped,
// with its reason.
func (r *runner) events(from io.Reader, label string, see func(e event, reason string)) {
	reasons := map[string]string{}
	lines := bufio.NewReaderSize(from, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if e, ok := parseEvent(line); ok {
			key := e.Package + " " + e.Test
			if m := reasonLine.FindStringSubmatch(e.Output); e.Action == "output" && m != nil {
				reasons[key] = m[1]
			}
			r.report.note(label, e, reasons[key])
			see(e, reasons[key])
			if e.isEnd() {
				delete(reasons, key)
			}
		}
		if err != nil {
			return
		}
	}
}

// parseEvent parses a line of test2json. It copies any other line to standard error: a message of go itself, for example
// that a build has failed.
func parseEvent(line []byte) (event, bool) {
	if len(bytes.TrimSpace(line)) == 0 {
		return event{}, false
	}
	var e event
	if json.Unmarshal(line, &e) != nil {
		fmt.Fprintf(os.Stderr, "%s", line)
		return event{}, false
	}
	return e, true
}
