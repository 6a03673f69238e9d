package commands

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"corral/front/cli"
	"corral/front/server"
	"corral/front/store"
	"corral/front/supervisor"
	"corral/internal/config"
	"corral/internal/flock"
	"corral/internal/text"
	"corral/isolate/client"
	"corral/isolate/client/embed"
	"corral/job"
	"corral/store/artifact"
)

// KeeperName is the name under which corral-front starts itself as the keeper of a job.
const KeeperName = "session-keeper"

const (
	// backgroundTool is what the keeper says about its job in lists and in the audit log.
	backgroundTool = "session exec"
	// maxKept is the maximum number of jobs that a user has in the background. It prevents a loop from filling the machine with
	// keepers by mistake; the supervisor bounds a user's jobs.
	maxKept = 64
	// startTime is how long a keeper waits for others that start jobs.
	startTime = 30 * time.Second
	// readyTime is how long the keeper waits for the job to listen before it says that it runs.
	readyTime = time.Second
	// pollInterval is the time between two questions whether it does.
	pollInterval = 20 * time.Millisecond
)

// KeeperCommand is the cli.Command of the keeper. It is started with the privileges of the caller: root connects to the supervisor, and
// becomes another user before it reads the job.
func KeeperCommand(args []string) error {
	cli.IgnorePipes()
	signal.Ignore(unix.SIGHUP)
	ctx, stop := cli.UntilTerminated()
	defer stop()
	f := flag.NewFlagSet(KeeperName, flag.ContinueOnError)
	socket := f.String("supervisor", "", "")
	if err := cli.ParseFlags(f, args, "corral "+KeeperName+" is run by corral itself.\n"); err != nil {
		return err
	}
	k, err := openKeeper(*socket)
	if err == nil {
		defer k.client.Close()
		err = k.keep(ctx)
	}
	if err != nil {
		return sayReply(keeperReply{Error: err.Error(), Code: job.CodeOf(err)})
	}
	return nil
}

// sayReply writes the reply, and gives up the streams of the command that waits for it.
func sayReply(r keeperReply) error {
	text, err := json.Marshal(r)
	if err == nil {
		_, err = os.Stdout.Write(text)
	}
	return errors.Join(err, leaveCaller())
}

// leaveCaller replaces the standard streams, so that nobody waits for them until the job has ended.
func leaveCaller() error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for fd := range 3 {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return fmt.Errorf("dup: %w", err)
		}
	}
	return nil
}

// A keeper runs one job and stores its output.
type keeper struct {
	client *client.Client
	uid    uint32 // as which the supervisor knows it
	store  *store.Artifacts
	repo   string // id of the repository
	spec   job.Spec
	before []uint16 // ports at which the session's jobs listened before
	pipes  relays   // of root
	// starting is locked by the keeper that counts the user's jobs and starts one more: jobs that start at once are counted, too.
	starting *os.File
}

// openKeeper connects to the supervisor, drops root, reads the job and opens the store for its output.
func openKeeper(socket string) (*keeper, error) {
	k := &keeper{uid: uint32(os.Getuid())}
	var err error
	if k.client, err = supervisor.Dial(socket); err != nil {
		return nil, errors.Join(err, embed.Drop())
	}
	dir, err := k.state()
	if err == nil && k.uid == 0 {
		err = embed.Piping.Do(func() (err error) {
			k.pipes, err = newRelays()
			return err
		})
	}
	if err := errors.Join(err, embed.Drop()); err != nil {
		return nil, errors.Join(err, k.client.Close())
	}
	c, _, err := server.LoadConfig(server.ConfigSources(""))
	if err == nil {
		k.starting, err = openLock(dir)
	}
	if err == nil {
		k.spec, err = client.TakeOver(os.Stdin)
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close(), k.client.Close())
	}
	k.repo = repoID(c, k.spec.Repo)
	k.store = store.NewArtifacts(c, slog.New(slog.DiscardHandler), func() (*os.File, error) { return dir, nil }, nil)
	if err := k.store.Open(); err != nil {
		return nil, errors.Join(fmt.Errorf("the output cannot be stored: %w", err), k.client.Close())
	}
	return k, nil
}

// openLock opens the file that keepers of the user lock while they start a job.
func openLock(dir *os.File) (*os.File, error) {
	const name = "background.lock"
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_CREAT|unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// state opens the directory of the user's state: of root, which stores nothing, that of the user that this process becomes.
func (k *keeper) state() (*os.File, error) {
	if k.uid != 0 {
		return supervisor.OpenUserState()
	}
	who, err := embed.Choose(embed.Nobody())
	if err != nil {
		return nil, err
	}
	return k.client.State(uint32(who.UID))
}

// maxRepo is the maximum number of bytes of the id of a repository that the configuration does not list.
const maxRepo = 64

// repoID returns the id of the repository at path: that of the configuration, else its name.
func repoID(c config.Config, path string) string {
	for _, r := range c.Repos {
		if r.Path == path {
			return r.ID
		}
	}
	return text.Head(filepath.Base(path), maxRepo)
}

// keep runs the job to its end. An error says that it was not started.
func (k *keeper) keep(ctx context.Context) error {
	defer k.store.Close()
	defer k.starting.Close()
	err := flock.Wait(ctx, int(k.starting.Fd()), unix.LOCK_EX, time.Now().Add(startTime))
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("other jobs in the background have been starting for %v: try again", startTime)
	}
	if err != nil {
		return err
	}
	if err := k.count(); err != nil {
		return err
	}
	k.before, _, _ = k.client.Ports(ctx, k.spec.Session) // of a session without jobs there are none
	out := k.store.Begin(artifact.BeginOptions{Repo: k.repo, Runtime: "command", Principal: server.UserPrincipal(), Persist: true})
	if out.Handle() == "" {
		return errors.New("the output cannot be stored: " + out.Captured().Reason)
	}
	k.spec.Claim = job.Claim{Tool: backgroundTool, Principal: server.UserPrincipal(), Repo: k.repo, Artifact: out.Handle()}
	r := k.start(ctx, out)
	said, err := k.describe(ctx, r, out.Handle())
	if err == nil {
		if err := sayReply(said); err != nil {
			r.cancel() // nobody knows of the job
		}
	}
	<-r.ended
	return err
}

// count returns an error if the user has the maximum of jobs in the background.
func (k *keeper) count() error {
	list, err := k.client.List()
	if err != nil {
		return err
	}
	n := 0
	for _, e := range list {
		if e.UID == k.uid && e.Tool == backgroundTool {
			n++
		}
	}
	if n >= maxKept {
		return fmt.Errorf("you have %d jobs in the background, the maximum\nhint: corral ps lists them, corral kill JOB ends one", n)
	}
	return nil
}

// describe returns what is said of the job: that it runs, and where it listens, or how it has ended. It waits until the job listens
// at a port at which no job of the session has listened before, for a second at most. The error says that it was not started.
func (k *keeper) describe(ctx context.Context, r *keptJob, handle string) (keeperReply, error) {
	said := keeperReply{Artifact: handle}
	for deadline := time.Now().Add(readyTime); ; {
		select {
		case <-r.ended:
			if r.err != nil {
				return said, r.err
			}
			said.Job, said.Ended, said.Code = r.record.Result.ID, endOf(&r.record.Result), r.record.Result.Code()
			return said, nil
		case <-time.After(pollInterval):
		}
		if said.Job == "" {
			if said.Job = k.find(handle); said.Job == "" {
				continue // it waits for a slot
			}
			k.starting.Close() // it counts from now on
			deadline = time.Now().Add(readyTime)
		}
		if ports, more, err := k.client.Ports(ctx, k.spec.Session); err == nil {
			said.Ports, said.More = ports, more
		}
		listens := slices.ContainsFunc(said.Ports, func(p uint16) bool { return !slices.Contains(k.before, p) })
		if listens || time.Now().After(deadline) {
			return said, nil
		}
	}
}

// find returns the id of the running job with this output, or "".
func (k *keeper) find(handle string) string {
	list, err := k.client.List()
	if err != nil {
		return ""
	}
	for _, e := range list {
		if e.UID == k.uid && e.Artifact == handle {
			return e.Job
		}
	}
	return ""
}

// endOf says how a job ended.
func endOf(r *job.Result) string {
	switch {
	case r.Status == job.Success, r.Status == job.Failure && r.Signal == 0 && r.Limit == "":
		return fmt.Sprintf("exit code %d", r.ExitCode)
	case r.Stopped:
		return "ended by corral kill"
	case r.Limit != "":
		return r.Limit + " limit reached"
	case r.Signal != 0 && r.Status == job.Failure:
		return "signal " + unix.SignalName(unix.Signal(r.Signal))
	}
	return string(r.Status)
}

// A keptJob is a job that was asked for.
type keptJob struct {
	cancel context.CancelFunc
	ended  chan struct{} // closed when the fields below are set
	record job.Record
	err    error // the job was not started
}

// start runs the job. When ctx ends, so does the job, see client.Run.Kill.
func (k *keeper) start(ctx context.Context, out *artifact.Output) *keptJob {
	ctx, cancel := context.WithCancel(ctx)
	r := &keptJob{cancel: cancel, ended: make(chan struct{})}
	r.record = job.Record{
		Created: time.Now(), Request: &job.Request{Tool: backgroundTool, Dir: k.spec.Dir}, Decision: job.Decision{Spec: k.spec},
	}
	go func() {
		defer close(r.ended)
		defer cancel()
		defer out.Discard() // does nothing after Finish
		r.err = k.run(ctx, &r.record, out)
	}()
	return r
}

func (k *keeper) run(ctx context.Context, record *job.Record, out *artifact.Output) error {
	stdout, stderr, err := out.Streams()
	if err != nil {
		return err
	}
	if k.pipes != nil {
		stdout, stderr = k.pipes.to(stdout, stderr)
	}
	record.Result, err = k.client.Run(ctx, k.spec, job.Stdio{Stdout: stdout, Stderr: stderr})
	k.pipes.wait()
	var refusal *job.Refusal
	switch {
	case errors.As(err, &refusal):
		return refusal.About(&k.spec)
	case err != nil && record.Result.Status != job.Lost:
		return err
	}
	record.Status, record.Duration = record.Result.Status, time.Since(record.Created)
	out.Finish(record)
	return nil
}
