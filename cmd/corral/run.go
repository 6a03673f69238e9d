package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/internal/usage"
	"corral/isolate/client"
	"corral/job"
)

func runCommand(args []string) (int, error) {
	o, err := parseRun(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0, printText(usage.Run)
	case err != nil && o == nil:
		return 0, err
	case err == nil && o.background:
		return 0, o.keep()
	}
	out := &streams{}
	var result job.Result
	if err == nil {
		out.limit, out.keep = o.limit, o.json
		o.stdin = o.stdin || !o.noStdin && !o.tty && isPiped(os.Stdin)
		result, err = o.connectAndRun(out)
	}
	if err != nil {
		if o.json {
			return job.CodeOf(err), printJSON(errorObject(err, out))
		}
		return 0, err
	}
	code := result.Code()
	if o.keepErr != nil {
		code = exitFailure
	}
	if o.json {
		return code, printJSON(resultObject(result, o, out))
	}
	printOutcome(result, o, out)
	return code, out.failed()
}

// isPiped reports whether f is a pipe or a regular file.
func isPiped(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && (info.Mode().IsRegular() || info.Mode()&os.ModeNamedPipe != 0)
}

// connectAndRun runs the job in o and waits for its end, and for the end of the supervisor if it was started for this
// job.
func (o *runOptions) connectAndRun(out *streams) (job.Result, error) {
	o.spec.Claim.Tool = cmp.Or(o.spec.Claim.Tool, "run")
	var t *hostTerminal
	if o.tty {
		var err error
		if t, err = openTerminal(); err != nil {
			return job.Result{}, err
		}
		o.spec.Terminal = t.Size()
	}
	c, finish, err := connect(o)
	if err != nil {
		return job.Result{}, err
	}
	defer finish()
	leave, err := o.enter(c)
	if err != nil {
		return job.Result{}, explain(err, o)
	}
	if o.entered != nil {
		if err := o.entered(c); err != nil {
			return job.Result{}, errors.Join(explain(err, o), leave())
		}
	}
	var result job.Result
	if o.tty {
		result, err = o.runTerminal(c, t)
	} else {
		result, err = o.run(c, out)
	}
	if err == nil && o.ended != nil {
		o.ended(c)
	}
	if left := leave(); err == nil {
		o.keepErr = left
	}
	return result, explain(err, o)
}

// run starts the job, forwards its streams, and waits for it.
func (o *runOptions) run(c *client.Client, out *streams) (job.Result, error) {
	signals := newSignalForwarder(func() {})
	out.first = signals.begin // a caller may react to the job's first output with a signal
	stdio, err := out.open(o.stdin)
	if err != nil {
		return job.Result{}, err
	}
	r, err := c.Start(o.spec, stdio, nil)
	if err != nil {
		return job.Result{}, err
	}
	defer signals.follow(r, catchAfter)()
	result, err := r.Wait()
	if err != nil {
		out.abandon()
		return result, err
	}
	// All processes of the job have ended, so the pipes hold everything that it wrote.
	out.finish()
	return result, nil
}

// A signalForwarder forwards the signals that this process receives to the job. The first signal goes to the job, which
// is killed if it has not ended after its Limits.KillAfter. The second calls leave, kills the job and ends this process.
// Signals that this process was started with as ignored (nohup(1)) stay ignored.
type signalForwarder struct {
	leave   func()
	more    []os.Signal // in addition to SIGINT, SIGTERM and SIGHUP
	signals chan os.Signal
	run     *client.Run
	started chan struct{} // closed when run is set

	mu           sync.Mutex
	begun, ended bool // guarded by mu
}

// catchAfter is the age of the job at which signals are caught, if it has not written any output before. Catching
// signals starts two threads, which takes a quarter of the time of a short job. Until then, a signal ends this process,
// and the job with it.
const catchAfter = 20 * time.Millisecond

func newSignalForwarder(leave func(), more ...os.Signal) *signalForwarder {
	return &signalForwarder{leave: leave, more: more, signals: make(chan os.Signal, 4), started: make(chan struct{})}
}

// follow sets the job, starts to catch signals after the given time, and returns a function that stops forwarding.
func (f *signalForwarder) follow(r *client.Run, after time.Duration) (end func()) {
	f.run = r
	close(f.started)
	timer := time.AfterFunc(after, f.begin)
	return func() {
		timer.Stop()
		f.stop()
	}
}

// begin starts to catch signals. It may be called more than once.
func (f *signalForwarder) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended || f.begun {
		return
	}
	f.begun = true
	for _, s := range append([]os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP}, f.more...) {
		if !signal.Ignored(s) {
			signal.Notify(f.signals, s)
		}
	}
	go f.forward()
}

func (f *signalForwarder) forward() {
	<-f.started
	asked := false
	for s := range f.signals {
		number := s.(syscall.Signal)
		if asked {
			f.leave()
			_ = f.run.Kill() // at once: it was told to end before
			os.Exit(128 + int(number))
		}
		asked = true
		_ = f.run.End(int(number))
	}
}

func (f *signalForwarder) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	signal.Stop(f.signals)
	close(f.signals)
}

// errLost means that the supervisor or the connection to it ended while the job ran.
var errLost = errors.New("the supervisor is gone, and the job with it")

// explain adds the program and the working directory, which the supervisor's refusal does not name, to err.
func explain(err error, o *runOptions) error {
	if errors.Is(err, job.ErrUnavailable) {
		return fmt.Errorf("%w: %s", errLost, strings.TrimPrefix(err.Error(), job.ErrUnavailable.Error()+": "))
	}
	var refusal *job.Refusal
	if !errors.As(err, &refusal) {
		return err
	}
	refusal = refusal.About(&o.spec)
	if refusal.Step == "exec" && refusal.Errno == int(unix.ENOENT) {
		refusal.Hint = cmp.Or(refusal.Hint, o.elsewhere())
	}
	return refusal
}

// elsewhere returns a hint on a program that PATH has outside of what jails show by themselves, "" if there is none.
func (o *runOptions) elsewhere() string {
	path, err := exec.LookPath(o.spec.Args[0])
	if err != nil || o.shows(path) || directory.Within(path, "/opt") || directory.Within(path, o.spec.Repo) {
		return ""
	}
	return fmt.Sprintf("PATH has it in %s, which jails show with --toolchain %[1]s, or by toolchains in the configuration of a running supervisor",
		filepath.Dir(path))
}

// shows reports whether all jails show a path: one of the system, or of a toolchain that was named.
func (o *runOptions) shows(path string) bool {
	return slices.ContainsFunc(append([]string{"/usr", "/bin", "/sbin"}, o.toolchains...), func(dir string) bool {
		return directory.Within(path, dir)
	})
}
