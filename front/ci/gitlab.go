package ci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"corral/front/cli"
	"corral/front/supervisor"
	"corral/internal/calls"
	"corral/internal/lazyregexp"
	"corral/internal/pipe"
	"corral/internal/version"
	"corral/isolate/client"
	"corral/isolate/client/embed"
	"corral/job"
)

// Maximum sizes of what the runner passes, in bytes.
const (
	maxResponse = 16 << 20
	maxScript   = 16 << 20
)

// jobVariable names the job to the later calls: `config` has the runner set it. Variables of the pipeline have the prefix
// CUSTOM_ENV_, so they cannot replace it.
const jobVariable = "CORRAL_CI_JOB"

// jobName matches the names that `config` gives.
var jobName = lazyregexp.New(`^gitlab-[0-9]{1,19}-[0-9a-f]{16}$`)

// A gitlab is one call by GitLab's runner. https://docs.gitlab.com/runner/executors/custom/ describes the protocol.
type gitlab struct {
	response response
	script   []byte   // of the stage, for run
	code     *os.File // where the runner reads the exit code of the stage's script from, for run; nil if it does not ask
	root     string   // the directory of all jobs and caches
	name     string   // of the job, and of its session; "" for config
	client   *client.Client
	pipes    [][2]*os.File // the ends for reading and for writing of standard output and standard error
}

// A response is the part of the coordinator's description of the job that is used here. It comes from the GitLab server;
// nothing of it is a variable that a pipeline can set.
type response struct {
	ID      int64 `json:"id"`
	JobInfo struct {
		ProjectID int64 `json:"project_id"`
	} `json:"job_info"`
	GitInfo struct {
		RepoURL   string `json:"repo_url"`
		Protected *bool  `json:"protected"` // absent in older versions
	} `json:"git_info"`
}

// enter reads what the runner passes in files that only its user may read, becomes the account if the runner is root, and
// connects to the supervisor. Nothing is parsed before it is no longer root.
func enter(o *options, words []string) (g *gitlab, err error) {
	g = &gitlab{}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	described, err := readFile(os.Getenv("JOB_RESPONSE_FILE"), "JOB_RESPONSE_FILE", maxResponse)
	if err == nil && words[1] == "run" {
		err = g.openRun(words[2])
	}
	home := os.Getenv("HOME")
	if embed.Root() {
		home, err = become(o.account, err)
	} else if err == nil && o.account != "" {
		err = errors.New("--account is for a runner that is root\nhint: run the runner as that user, or leave out --account")
	}
	if err == nil && words[1] != "config" {
		err = g.connect(o.supervisor)
	}
	if err != nil {
		return g, err
	}
	if err := json.Unmarshal(described, &g.response); err != nil {
		return g, fmt.Errorf("JOB_RESPONSE_FILE: %w", err)
	}
	if g.response.ID <= 0 {
		return g, errors.New("JOB_RESPONSE_FILE: has no id of a job\nhint: GitLab Runner 14.7 or later is needed")
	}
	if g.root, err = o.root(home); err != nil {
		return g, err
	}
	if words[1] == "config" {
		return g, nil
	}
	if g.name = os.Getenv(jobVariable); !jobName().MatchString(g.name) {
		return g, fmt.Errorf("%s is not set: the runner sets it if config_exec is corral ci gitlab config", jobVariable)
	}
	return g, nil
}

// openRun reads the stage's script and opens what the stage needs while this process is the runner's user.
func (g *gitlab) openRun(script string) (err error) {
	if g.script, err = readFile(script, "script of the stage", maxScript); err != nil {
		return err
	}
	if path := os.Getenv("BUILD_EXIT_CODE_FILE"); path != "" {
		if g.code, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// connect connects to the supervisor, as the user that is to own what the job writes.
func (g *gitlab) connect(socket string) (err error) {
	if g.client, err = supervisor.Dial(socket); err != nil {
		return err
	}
	for range 2 {
		read, write, err := pipe.New(pipe.Reads)
		if err != nil {
			return err
		}
		g.pipes = append(g.pipes, [2]*os.File{read, write})
	}
	return nil
}

func (g *gitlab) close() {
	for _, p := range g.pipes {
		_, _ = p[0].Close(), p[1].Close()
	}
	if g.code != nil {
		_ = g.code.Close()
	}
	if g.client != nil {
		_ = g.client.Close()
	}
}

// become gives up root for the account, also after an error, and returns the account's home directory.
func become(named string, before error) (home string, err error) {
	if named == "" && os.Getenv("SUDO_UID") == "" {
		before = errors.Join(errors.New("the runner is root\nhint: --account USER names the user that is to own what jobs write"), before)
	}
	who, err := embed.Account(named)
	if err == nil && before == nil {
		err = embed.BecomeAccount(who)
	}
	if err = errors.Join(before, err); err != nil {
		return "", errors.Join(err, embed.Drop())
	}
	if u, err := user.LookupId(strconv.FormatUint(uint64(who.UID), 10)); err == nil {
		home = u.HomeDir
	}
	return home, nil
}

func readFile(path, what string, limit int64) ([]byte, error) {
	if path == "" {
		return nil, fmt.Errorf("%s is not set: GitLab's runner calls this command, as its custom executor\nhint: corral ci --help", what)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("has more than %d bytes", limit)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return b, nil
}

// config prints the configuration of the job for the runner. It makes nothing: the runner may not call cleanup after it.
func (o *options) config(g *gitlab, _ []string) error {
	g.name = fmt.Sprintf("gitlab-%d-%s", g.response.ID, calls.RandomHex(8))
	out, err := json.Marshal(map[string]any{
		"driver":     map[string]string{"name": "corral", "version": version.Version},
		"builds_dir": filepath.Join(g.dir(), "builds"), "cache_dir": filepath.Join(g.dir(), "cache"),
		"builds_dir_is_shared": false, "shell": "bash",
		"job_env": map[string]string{jobVariable: g.name},
	})
	if err == nil {
		err = cli.Print(string(out) + "\n")
	}
	return err
}

// dir returns the directory of the job, which is the repository of its session.
func (g *gitlab) dir() string { return filepath.Join(g.root, "jobs", g.name) }

// prepare makes the job's directory and opens its session. It removes what jobs left whose runner was killed.
func (o *options) prepare(g *gitlab, _ []string) error {
	ctx, stop := cli.UntilStopped()
	defer stop()
	open, err := g.client.ListSessions(ctx)
	if err != nil {
		return err
	}
	if err := makeJob(g.root, g.name); err != nil {
		return err
	}
	g.sweep(open)
	_, err = g.client.OpenSession(ctx, job.SessionSpec{
		Repo: g.dir(), Name: g.name, Profile: o.profile, Workspace: job.Direct, Share: true, Lasting: true, Disk: o.layer,
		Network: o.networkOf(&g.response),
	})
	if err != nil {
		return errors.Join(err, g.removeJob(g.name))
	}
	return nil
}

// networkOf returns what a job asks to reach. The operator's rules for directories of the user are the maximum. What a pipeline sets
// decides nothing: only the server says whether the job's ref is protected, and an older one, which does not, has none that is.
func (o *options) networkOf(r *response) string {
	if r.protected() {
		return o.network.protected
	}
	if o.network.protected != "" && o.network.other == job.NoNetwork {
		cli.Note("this job reaches no host: its branch or tag is not protected")
	}
	return o.network.other
}

// protected reports whether the server says that the job's branch or tag is protected.
func (r *response) protected() bool { return r.GitInfo.Protected != nil && *r.GitInfo.Protected }

// cleanup ends the session, and with it whatever still runs, and removes the job's directory.
func (o *options) cleanup(g *gitlab, _ []string) error {
	s, err := job.FindSession(context.Background(), g.client, g.name, true)
	if err == nil {
		_, err = g.client.CloseSession(context.Background(), s.ID, false)
	} else if g.client.Err() == nil {
		err = nil // it has ended by itself, or was never opened
	}
	return errors.Join(err, g.removeJob(g.name))
}
