// Bench times one /bin/true: bare, in bubblewrap, and in corral at each of its levels. All of them are run in turn, round
// by round, so that a machine's drift hits them alike; what counts is the median of a row and its ratio to bare in the
// same round.
//
//	-mcp      the same for a script: bash alone, and an agent that calls runtime_execute
//	-session  the same for a call in a session that stands: sandbox_exec and command/exec, beside podman exec and Codex's
//	          own command/exec, if scripts/setup-peers has fetched them
//	-starlark the same for a program in Starlark: its interpreter alone, and an agent that calls starlark_run
//	-stream   how fast output streams through command/exec, beside a pipe
//	-index    what of planted lines the index finds, and what it takes to add much; needs no root
//	-index-large  searches in ten million lines, too, which takes minutes
//
// Run it as root, by `make bench`; -n sets the rounds, -idle waits before each run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"corral/isolate/client"
	"corral/job"
)

func main() {
	var o options
	flag.IntVar(&o.rounds, "n", 200, "rounds")
	flag.DurationVar(&o.idle, "idle", 0, "wait before each run")
	flag.StringVar(&o.bin, "bin", "bin", "directory of the programs")
	flag.StringVar(&o.peers, "peers", ".cache/peers", "directory of scripts/setup-peers")
	mcp := flag.Bool("mcp", false, "an agent's call beside the bare script")
	session := flag.Bool("session", false, "a call in a standing session beside podman exec and Codex")
	program := flag.Bool("starlark", false, "a program in Starlark beside its bare interpreter")
	stream := flag.Bool("stream", false, "a stream of output beside a pipe")
	quality := flag.Bool("index", false, "what the index finds, and what that takes")
	large := flag.Bool("index-large", false, "the same, and searches in ten million lines")
	flag.Int64Var(&o.bytes, "bytes", 1<<30, "of the stream")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *quality || *large {
		if err := indexRows(ctx, *large); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	what := runRows
	switch {
	case *mcp:
		what = mcpRows
	case *session:
		what = sessionRows
	case *program:
		what = starlarkRows
	case *stream:
		what = nil
	}
	if err := run(ctx, &o, what); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the command line, and the place where it is all done.
type options struct {
	rounds int
	idle   time.Duration
	bin    string // absolute
	peers  string // absolute
	bytes  int64

	dir, repo, socket, state string
}

// A row is one way of running a program. The first of a table is bare.
type row struct {
	name  string
	what  string // what it sets up
	run   func() error
	times []time.Duration
}

// A table makes its rows, and what is to be called after them.
type table func(*options) ([]*row, func(), error)

func run(ctx context.Context, o *options, what table) error {
	stop, err := o.prepare()
	defer stop()
	if err != nil {
		return err
	}
	if what == nil {
		return stream(o)
	}
	rows, finish, err := what(o)
	if err != nil {
		return err
	}
	defer finish()
	for i := range o.rounds + 5 {
		for _, r := range rows {
			time.Sleep(o.idle)
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			start := time.Now()
			if err := r.run(); err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			if i >= 5 { // the first rounds warm caches
				r.times = append(r.times, time.Since(start))
			}
		}
	}
	return print(rows)
}

// prepare makes a directory with a repository, and starts a supervisor for it. Front-ends run as nobody, who owns the
// repository. What it returns clears all that, whatever the error.
func (o *options) prepare() (clear func(), err error) {
	clear = func() {}
	for _, dir := range []*string{&o.bin, &o.peers} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return clear, err
		}
	}
	if o.dir, err = os.MkdirTemp("", "corral-bench-"); err != nil {
		return clear, err
	}
	clear = func() { _ = os.RemoveAll(o.dir) }
	o.repo, o.state = filepath.Join(o.dir, "repo"), filepath.Join(o.dir, "state")
	o.socket = filepath.Join(o.dir, "socket")
	err = errors.Join(os.Chmod(o.dir, 0o755), os.Mkdir(o.repo, 0o755), os.Mkdir(o.state, 0o700),
		os.Chown(o.repo, nobody, nobody), os.Chown(o.state, nobody, nobody))
	if err != nil {
		return clear, err
	}
	stop, err := supervise(o.bin, o.socket, o.repo)
	if err != nil {
		return clear, err
	}
	return func() {
		stop()
		_ = os.RemoveAll(o.dir)
	}, os.Chmod(o.socket, 0o666)
}

// supervise starts a supervisor of its own and waits until it serves.
func supervise(bin, socket, repo string) (func(), error) {
	cmd := exec.Command(filepath.Join(bin, "corrald"), "--instance", fmt.Sprintf("bench-%d", os.Getpid()), "--socket", socket,
		"--repo", repo, "--state", filepath.Join(filepath.Dir(socket), "lib"))
	log, err := os.OpenFile(filepath.Join(filepath.Dir(socket), "log"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		log.Close()
	}
	for range 500 {
		if c, err := client.Dial(socket); err == nil {
			c.Close()
			return stop, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	said, _ := os.ReadFile(log.Name())
	return nil, fmt.Errorf("the supervisor did not start: %s", said)
}

// runRows are /bin/true, at each of corral's levels.
func runRows(o *options) ([]*row, func(), error) {
	c, err := client.Dial(o.socket)
	if err != nil {
		return nil, nil, err
	}
	rows := []*row{
		{name: "bare", what: "nothing", run: command("/bin/true")},
	}
	if bwrap, err := exec.LookPath("bwrap"); err == nil {
		rows = append(rows, &row{
			name: "bubblewrap", what: "user mnt pid net ipc uts cgroup namespaces; no cgroup, no seccomp",
			run: command(bwrap, "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--clearenv",
				"--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
				"--symlink", "usr/lib64", "/lib64", "--ro-bind", "/etc", "/etc", "--proc", "/proc", "--dev", "/dev",
				"--tmpfs", "/tmp", "--bind", o.repo, o.repo, "--chdir", o.repo, "/bin/true"),
		})
	}
	spec := job.Spec{Repo: o.repo, Args: []string{"/bin/true"}}
	return append(rows,
		&row{name: "corral, API", what: "all namespaces, cgroup, seccomp, Landlock; standing jail", run: func() error {
			return runJob(c, spec)
		}},
		&row{name: "corral run", what: "the same, as a command", run: command(filepath.Join(o.bin, "corral"),
			"run", "--supervisor", o.socket, "--repo", o.repo, "--", "/bin/true")},
		&row{name: "corral version", what: "the command alone", run: command(filepath.Join(o.bin, "corral"), "version")},
	), func() { c.Close() }, nil
}

// command runs a program as a shell would, without one.
func command(args ...string) func() error { return commandIn(nil, args...) }

// commandIn is command in another environment than ours.
func commandIn(env []string, args ...string) func() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return func() error { return err }
	}
	return func() error {
		p, err := os.StartProcess(args[0], args, &os.ProcAttr{Env: env, Files: []*os.File{null, null, os.Stderr}})
		if err != nil {
			return err
		}
		state, err := p.Wait()
		if err == nil && !state.Success() {
			err = fmt.Errorf("%s: %v", strings.Join(args, " "), state)
		}
		return err
	}
}

func runJob(c *client.Client, spec job.Spec) error {
	var stdio job.Stdio
	var ours []*os.File
	for _, to := range []**os.File{&stdio.Stdout, &stdio.Stderr} {
		read, write, err := os.Pipe()
		if err != nil {
			return err
		}
		*to = write
		ours = append(ours, read)
	}
	r, err := c.Run(context.Background(), spec, stdio)
	for _, f := range ours {
		f.Close()
	}
	if err == nil && r.Status != job.Success {
		err = fmt.Errorf("%+v", r)
	}
	return err
}

func print(rows []*row) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ROW\tMEDIAN ms\tP95 ms\tADDED ms\t× BARE\tSETS UP")
	for _, r := range rows {
		var ratios, added []float64
		for i, t := range r.times {
			base := rows[0].times[i]
			ratios = append(ratios, float64(t)/float64(base))
			added = append(added, ms(t-base))
		}
		var all []float64
		for _, t := range r.times {
			all = append(all, ms(t))
		}
		fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%+.3f\t%.2f\t%s\n", r.name, quantile(all, 0.5), quantile(all, 0.95),
			quantile(added, 0.5), quantile(ratios, 0.5), r.what)
	}
	return w.Flush()
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func quantile(values []float64, q float64) float64 {
	sorted := append([]float64(nil), values...)
	sort.Float64s(sorted)
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}
