package ci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/front/cli"
	"corral/internal/calls"
	"corral/job"
)

// drainTimeout bounds the wait for the end of the output, after all processes of the stage have ended: a job can pass the write end of a
// pipe to a process outside it.
const drainTimeout = 2 * time.Second

// transfers are the beginnings of the names of stages whose scripts the runner writes, to transfer sources, caches and
// artifacts. All other stages run scripts of the pipeline.
var transfers = []string{"get_sources", "restore_cache", "download_artifacts", "archive_cache", "upload_artifacts"}

// environment is the whole environment of a stage. The script sets the variables of the pipeline by itself.
var environment = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin",
	"HOME=" + job.Home, "USER=job", "LOGNAME=job", "SHELL=/bin/bash", "TMPDIR=/tmp", "LANG=C.UTF-8", "TERM=dumb",
}

// run runs one stage.
func (o *options) run(g *gitlab, args []string) error {
	stage := args[1]
	ctx, stop := cli.UntilStopped()
	defer stop()
	s, err := job.FindSession(ctx, g.client, g.name, true)
	if err != nil {
		return fmt.Errorf("the session of the job: %w", err)
	}
	dir, err := openJob(g.root, g.name)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	store := g.cacheStore()
	if stage == "restore_cache" {
		if err := restoreCache(store, dir, o.cache); err != nil {
			cli.Warn("the caches of the project were not restored: %v", err)
		}
	}
	err = o.runStage(ctx, g, s, dir, stage)
	if err == nil && strings.HasPrefix(stage, "archive_cache") {
		if err := keepCache(dir, store, o.cache); err != nil {
			cli.Warn("the caches of the project were not kept: %v", err)
		}
	}
	var failed *scriptError
	if errors.As(err, &failed) && g.code != nil {
		_, wrote := g.code.WriteString(strconv.Itoa(failed.code) + "\n")
		err = errors.Join(err, wrote)
	}
	return err
}

// runStage puts the script into the job's directory, where no job runs now, and runs it.
func (o *options) runStage(ctx context.Context, g *gitlab, s job.Session, dir *os.Root, stage string) error {
	script := unique(".stage-")
	defer remove(dir, script)
	if err := write(dir, script, g.script); err != nil {
		return err
	}
	program := []string{"bash", "./" + script}
	if slices.ContainsFunc(transfers, func(t string) bool { return strings.HasPrefix(stage, t) }) {
		to, err := o.origin(g)
		if err != nil {
			return err
		}
		if to != nil {
			socket := unique(".server-")
			end, err := listen(g.dir(), socket, to)
			if err != nil {
				return err
			}
			defer remove(dir, socket)
			defer end()
			front, err := os.Executable()
			if err != nil {
				return err
			}
			program = append([]string{front, Relay, "./" + socket}, program...)
		}
	}
	r, err := start(ctx, g, job.Spec{
		Repo: s.Repo, Session: s.ID, Workspace: s.Workspace, Profile: o.profile, Args: program, Env: environment, Usual: true, Limits: o.limits,
		Claim: job.Claim{Tool: "ci gitlab", Request: strconv.FormatInt(g.response.ID, 10), Session: g.name, Runtime: stage},
	})
	if err != nil {
		return explain(err, program[0])
	}
	return outcome(r, o.limits)
}

// start runs the job and copies its output. When ctx ends, the job gets SIGTERM, and is killed if it has not ended after its
// Limits.KillAfter.
func start(ctx context.Context, g *gitlab, spec job.Spec) (job.Result, error) {
	copied := make(chan error, len(g.pipes))
	for i, to := range []*os.File{os.Stdout, os.Stderr} {
		go func() {
			_, err := io.Copy(to, g.pipes[i][0])
			copied <- err
		}()
	}
	r, err := g.client.Start(spec, job.Stdio{Stdout: g.pipes[0][1], Stderr: g.pipes[1][1]}, nil)
	if err != nil {
		return job.Result{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = r.End(int(unix.SIGTERM)) })
	defer stop()
	result, err := r.Wait()
	for _, p := range g.pipes {
		_ = p[0].SetReadDeadline(time.Now().Add(drainTimeout)) // fails only if the pipe is closed
	}
	for range g.pipes {
		if cause := <-copied; cause != nil && !errors.Is(cause, os.ErrDeadlineExceeded) {
			err = errors.Join(err, cause)
		}
	}
	if ctx.Err() != nil && err == nil && result.Status != job.Success {
		result.Status = job.Cancelled
	}
	return result, err
}

// origin returns where the stages that transfer files may connect, or nil for nowhere.
func (o *options) origin(g *gitlab) (*origin, error) {
	switch {
	case o.offline:
		return nil, nil
	case o.server != "":
		return originOf(o.server)
	case g.response.GitInfo.RepoURL == "":
		return nil, nil
	}
	to, err := originOf(g.response.GitInfo.RepoURL)
	if err != nil {
		return nil, fmt.Errorf("the repository of the job: %w\nhint: --server URL or --offline", err)
	}
	return to, nil
}

// cacheStore returns the directory that keeps the caches of the job's project. A pipeline of an unprotected branch, which
// more people can change, neither reads nor writes what pipelines of protected branches keep.
func (g *gitlab) cacheStore() string {
	kind := "unprotected"
	if g.response.protected() {
		kind = "protected"
	}
	server := "none"
	if to, err := originOf(g.response.GitInfo.RepoURL); err == nil {
		server = url.PathEscape(to.address)
	}
	return filepath.Join(g.root, "cache", server, strconv.FormatInt(g.response.JobInfo.ProjectID, 10)+"-"+kind)
}

// unique returns a name that no job can have used before.
func unique(prefix string) string { return prefix + calls.RandomHex(12) }
