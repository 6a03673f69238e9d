package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"corral/isolate/client"
)

// nobody is the user that servers run as: a front-end has no privileges.
const nobody = 65534

// options are the command line, and the state of a run.
type options struct {
	rounds  int
	idle    time.Duration
	limit   time.Duration
	bin     string // absolute
	base    string // absolute; "" is none
	peers   string // absolute
	results string // absolute
	page    string // absolute
	only    string
	bytes   int64
	slice   time.Duration
	colds   int

	begun time.Time
	busy  string    // the load of the machine before the run
	until time.Time // no round begins after this time; zero means no bound

	dir, repo, socket, state string
	cold                     []string // repositories in which no job has run
	slotless                 bool     // the supervisor prepares no slots ahead
	settings                 string   // lines of the supervisor's configuration
}

func (o *options) flags(f *flag.FlagSet) {
	f.IntVar(&o.rounds, "n", 200, "rounds")
	f.DurationVar(&o.idle, "idle", 0, "wait before each run")
	f.DurationVar(&o.limit, "limit", 0, "no round begins after it; 0 is no bound")
	f.StringVar(&o.bin, "bin", "bin", "directory of the programs")
	f.StringVar(&o.base, "base", "", "directory of the programs of another build, measured in turn with these where no mode is given")
	f.StringVar(&o.peers, "peers-dir", ".cache/peers", "directory of bench/setup-peers")
	f.StringVar(&o.results, "results", ".cache/bench", "directory of what is kept")
	f.StringVar(&o.page, "page", "docs/explanation/performance.md", "what -write renders into")
	f.StringVar(&o.only, "only", "", "only rows with this in their name, beside bare")
	f.Int64Var(&o.bytes, "bytes", 1<<30, "of -network, in each direction")
	f.DurationVar(&o.slice, "slice", time.Second, "of -parallel, for each row, number at once and round; -n has no more than 5 of them")
	f.IntVar(&o.colds, "colds", 20, "of -levels, repositories that are new")
}

// complete makes the paths of directories absolute.
func (o *options) complete() error {
	if o.rounds < 1 || o.bytes < 1 || o.colds < 1 {
		return errors.New("numbers are at least 1")
	}
	for _, dir := range []*string{&o.bin, &o.base, &o.peers, &o.results, &o.page} {
		var err error
		if *dir == "" {
			continue
		}
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	return nil
}

// over reports whether the time for a mode is over.
func (o *options) over() bool { return !o.until.IsZero() && time.Now().After(o.until) }

// prepare makes a directory with repositories and starts a supervisor for them. Front-ends run as nobody, who owns the
// repositories. The returned function undoes all of it, and must be called after an error, too.
func (o *options) prepare() (finish func(), err error) {
	finish = func() {}
	if o.dir, err = os.MkdirTemp("", "corral-bench-"); err != nil {
		return finish, err
	}
	remove := func() { _ = os.RemoveAll(o.dir) }
	o.repo, o.state = filepath.Join(o.dir, "repo"), filepath.Join(o.dir, "state")
	o.socket = filepath.Join(o.dir, "socket")
	err = errors.Join(os.Chmod(o.dir, 0o755), os.Mkdir(o.state, 0o700), os.Chown(o.state, nobody, nobody))
	o.cold = nil
	for i := range o.colds {
		o.cold = append(o.cold, filepath.Join(o.dir, "cold-"+strconv.Itoa(i)))
	}
	repos := append([]string{o.repo}, o.cold...)
	for _, repo := range repos {
		err = errors.Join(err, os.Mkdir(repo, 0o755), os.Chown(repo, nobody, nobody))
	}
	if err != nil {
		return remove, err
	}
	stop, err := o.supervise(repos)
	if err != nil {
		return remove, err
	}
	return func() {
		stop()
		remove()
	}, os.Chmod(o.socket, 0o666)
}

// part calls run with a supervisor of its own, and a connection to it; o.cold gets the given number of repositories beside o.repo.
func (o *options) part(ctx context.Context, repos int, run func(context.Context, *options, *client.Client) error) error {
	own := *o
	own.colds = repos
	if own.limit > 0 {
		own.until = time.Now().Add(own.limit)
	}
	finish, err := own.prepare()
	defer finish()
	if err != nil {
		return err
	}
	c, err := client.Dial(own.socket)
	if err != nil {
		return err
	}
	defer c.Close()
	return run(ctx, &own, c)
}

// supervise starts a supervisor and waits until it serves.
func (o *options) supervise(repos []string) (func(), error) {
	args := []string{"--instance", filepath.Base(o.dir), "--socket", o.socket, "--state", filepath.Join(o.dir, "lib")}
	for _, repo := range repos {
		args = append(args, "--repo", repo)
	}
	settings := o.settings
	if o.slotless {
		settings += "warm_slots: 0\n"
	}
	if settings != "" {
		file := filepath.Join(o.dir, "config.yaml")
		if err := os.WriteFile(file, []byte("version: 1\n"+settings), 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--config", file)
	}
	cmd := exec.Command(filepath.Join(o.bin, "corrald"), args...)
	log, err := os.OpenFile(filepath.Join(o.dir, "log"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		log.Close()
		return nil, err
	}
	stop := func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		log.Close()
	}
	for range 500 {
		if c, err := client.Dial(o.socket); err == nil {
			c.Close()
			return stop, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	said, _ := os.ReadFile(log.Name())
	return nil, fmt.Errorf("the supervisor did not start: %s", said)
}
