// Command test runs the tests of the module: `make test`, `make test-unit` and `make soak` are this program.
//
// A test that requires something of the machine from package sandboxtest (root, cgroups, a feature of the kernel, the built
// programs) is a machine test; every other test is a unit test. No test can be in neither: the unit run executes every test
// function, and the machine run executes those that skipped themselves because they need the machine.
//
//	test unit             unit tests only, as any user, with -short
//	test [all]            unit tests, then machine tests, as root; with -race, those with the race detector in whose process
//	                      goroutines meet
//	test soak             the same with every loop in full, and all machine tests with the race detector
//
// As root, each test process has a machine of its own, as far as tests can see: see machine.go. So machine tests of one
// package can run in parallel, although many of them examine all mounts, processes and cgroups.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// options are the options of the command line.
type options struct {
	mode     string // unit, all, soak
	packages []string
	run      string        // a regular expression for names of tests, "" for all
	jobs     int           // test processes side by side
	after    int           // as many once the guest has ended
	cover    string        // file for the coverage of all packages, "" for none
	detector bool          // with the race detector, where it has something to find
	guest    bool          // run scripts/test-vm beside the last machine tests
	timeout  time.Duration // of one test process
	cache    string        // directory for test binaries and the times of tests
}

func main() {
	switch {
	case len(os.Args) > 1 && os.Args[1] == enterCommand:
		os.Exit(enter(os.Args[2:]))
	case len(os.Args) > 1 && os.Args[1] == insideCommand:
		os.Exit(inside(os.Args[2:]))
	}
	// A signal ends the test processes first, so that each can clean up.
	ctx, stop := signal.NotifyContext(context.Background(), endSignals()...)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errFailed):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "test:", err)
		os.Exit(2)
	}
}

// errFailed means that tests failed, which the report has said.
var errFailed = errors.New("tests failed")

func parse(args []string) (*options, error) {
	o := &options{mode: "all"}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		o.mode, args = args[0], args[1:]
	}
	if o.mode != "unit" && o.mode != "all" && o.mode != "soak" {
		return nil, fmt.Errorf("%q is not a kind of run: unit, all or soak", o.mode)
	}
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	pkg := flags.String("pkg", "./...", "packages, separated by spaces")
	flags.StringVar(&o.run, "run", "", "run the tests alone whose names match this regular expression")
	flags.IntVar(&o.jobs, "jobs", 0, "test processes side by side (default as many as keep the processors busy)")
	flags.StringVar(&o.cover, "cover", "", "write a coverage profile of all packages to this file; without the race detector")
	flags.BoolVar(&o.guest, "guest", false, "run scripts/test-vm too, beside the machine tests")
	flags.BoolVar(&o.detector, "race", false, "with the race detector, where it has something to find; a soak without -run always has it")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Minute, "limit for one test process")
	flags.StringVar(&o.cache, "cache", ".cache/test", "directory for test binaries and for how long tests took")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if _, err := regexp.Compile(o.run); err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	given := false
	flags.Visit(func(f *flag.Flag) { given = given || f.Name == "jobs" })
	if !given {
		o.jobs = o.usualJobs(runtime.NumCPU(), o.guest)
		o.after = o.usualJobs(runtime.NumCPU(), false)
	}
	o.after = max(o.after, o.jobs)
	if o.jobs < 1 {
		return nil, fmt.Errorf("-jobs: %d is less than 1", o.jobs)
	}
	o.detector = (o.detector || o.mode == "soak" && o.run == "") && o.cover == ""
	if o.mode == "soak" {
		o.timeout *= 6
	}
	o.packages = strings.Fields(*pkg)
	var err error
	o.cache, err = filepath.Abs(o.cache)
	return o, err
}

// usualJobs returns how many test processes keep processors busy. A machine test waits for about half of its time. The guest uses one
// and a half processors beside the tests, and a soak runs them with the race detector, which waits for nothing.
func (o *options) usualJobs(processors int, guest bool) int {
	if guest || o.mode == "soak" {
		return processors + 1
	}
	return 2 * processors
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	root := os.Geteuid() == 0
	if o.mode != "unit" && !root {
		return errors.New("not root: machine tests make jails, mounts and cgroups. Run: sudo make test, or make test-unit")
	}
	if err := os.MkdirAll(o.cache, 0o755); err != nil {
		return err
	}
	list, err := listPackages(ctx, o.packages)
	if err != nil {
		return err
	}
	report := newReport(os.Stdout, o)
	if report.quarantine, err = readQuarantine(quarantineList); err != nil {
		return err
	}
	r := &runner{options: o, report: report, times: loadTimes(o.cache), root: root && o.mode != "unit"}
	if r.root {
		remove, err := makeOwnDirs()
		if err != nil {
			return err
		}
		defer remove()
	}
	err = r.all(ctx, list)
	r.times.save()
	if !r.report.finish() && err == nil {
		err = errFailed
	}
	return err
}
