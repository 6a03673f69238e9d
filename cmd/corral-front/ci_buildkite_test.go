package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// A buildkitePlace is a machine with Buildkite's agent and the command hook.
type buildkitePlace struct {
	*place
	*buildkite
	path, home string
}

func newBuildkitePlace(t *testing.T) *buildkitePlace {
	t.Helper()
	agent := ciClient(t, "buildkite-agent")
	p, path := hooked(t)
	b := &buildkitePlace{place: p, buildkite: newBuildkite(t), path: path, home: filepath.Join(p.dir, "home")}
	hooks := filepath.Join(b.home, "hooks")
	err := sandboxtest.CopyProgram(agent, filepath.Join(p.dir, "bin", "buildkite-agent"))
	for _, dir := range []string{b.home, hooks, filepath.Join(b.home, "tmp")} {
		err = errors.Join(err, os.Mkdir(dir, 0o755), os.Chown(dir, p.uid, p.uid))
	}
	if err != nil {
		t.Fatal(err)
	}
	p.commandHook(t, hooks, "CORRAL_ARGS='--memory 512MiB'\nCORRAL_ENV=DEPLOY_TOKEN\n")
	return b
}

// start starts an agent that runs up to n jobs at once, until the end of the test. Lines of logs have the time in an escape
// sequence, as by default: without it, agent 3.137.2 can lose the end of a log, as it closes a pipe before it has read the terminal.
func (b *buildkitePlace) start(t *testing.T, n int) *sandboxtest.Command {
	t.Helper()
	cmd := exec.Command(filepath.Join(b.dir, "bin", "buildkite-agent"), "start", "--token", "agent-token", "--endpoint", b.url+"/v3",
		"--name", "test-%spawn", "--spawn", fmt.Sprint(n), "--build-path", filepath.Join(b.home, "builds"),
		"--hooks-path", filepath.Join(b.home, "hooks"), "--plugins-path", filepath.Join(b.home, "plugins"),
		"--sockets-path", filepath.Join(b.home, "sockets"), "--no-local-hooks", "--no-plugins", "--no-color", "--no-ssh-keyscan",
		"--ping-mode", "poll-only")
	cmd.Dir = b.home
	cmd.Env = []string{"PATH=" + b.path, "HOME=" + b.home, "TMPDIR=" + filepath.Join(b.home, "tmp")}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(b.uid), Gid: uint32(b.uid)}, Pdeathsig: syscall.SIGKILL,
	}
	return sandboxtest.Start(t, cmd)
}

// await waits for jobs.
func (b *buildkitePlace) await(t *testing.T, ids ...string) (list []buildkiteJob) {
	t.Helper()
	sandboxtest.Eventually(t, sandboxtest.Slow(10*time.Minute), fmt.Sprint("the jobs end: ", ids), func() (all bool) {
		list, all = b.ended(ids...)
		return all
	})
	return list
}

// stop ends an agent that has no job.
func (b *buildkitePlace) stop(t *testing.T, agent *sandboxtest.Command) {
	t.Helper()
	if err := agent.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if !agent.EndsWithin(sandboxtest.Slow(time.Minute)) {
		t.Fatal("the agent does not end")
	}
	if agent.Code() != 0 {
		t.Errorf("the agent ended with %d: %s", agent.Code(), agent.Err.String())
	}
}

// TestBuildkiteAgent runs five jobs with Buildkite's own agent, in one checkout: a job with an artifact and a secret, one that
// fails, a hostile one, one after it and one that is cancelled. Then jobs run in parallel. Exit statuses, logs and artifacts are
// right, and nothing is left.
func TestBuildkiteAgent(t *testing.T) {
	ciClient(t, "buildkite-agent")
	sandboxtest.Leaks(t)
	b := newBuildkitePlace(t)
	agent := b.start(t, 1)
	b.pipeline(t)
	b.stop(t, agent)

	agent = b.start(t, 4)
	var ids []string
	for n := range sandboxtest.Scale(45) {
		ids = append(ids, b.add(fmt.Sprintf("test -f README && echo job %d", n), nil))
	}
	for n, j := range b.await(t, ids...) {
		if j.status != "0" || !strings.Contains(j.log(), fmt.Sprintf("job %d", n)) {
			t.Errorf("%d: %s\n%s", n, j.status, j.log())
		}
	}
	b.stop(t, agent)
	if names := namesIn(t, filepath.Join(b.home, "tmp")); names != "" {
		t.Errorf("left in the agent's TMPDIR: %s", names)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.strange) > 0 || len(b.agents) != 5 {
		t.Errorf("agents %q, unknown requests %q", b.agents, b.strange)
	}
}

// pipeline runs five jobs, one after the other.
func (b *buildkitePlace) pipeline(t *testing.T) {
	t.Helper()
	taken := filepath.Join(b.dir, "taken")
	if err := errors.Join(os.Mkdir(taken, 0o755), os.Chown(taken, b.uid, b.uid)); err != nil {
		t.Fatal(err)
	}
	program := "touch " + taken + "/by-the-job"
	hostile := strings.Join([]string{
		"cat " + b.dir + "/corral.env || echo hidden", "echo token ${BUILDKITE_AGENT_ACCESS_TOKEN:-none}",
		"curl -sS -m 5 " + b.url + "/ || echo no network",
		"printf '#!/bin/sh\\n" + program + "\\n' >.git/hooks/post-checkout || echo no hook",
		"git config core.fsmonitor '" + program + "; false' || echo no configuration",
		"(setsid sleep 1000 >/dev/null 2>&1 &)", "tail /dev/zero",
	}, "\n")
	jobs := []struct {
		name, command, status string
		says                  []string
	}{
		{
			"build", "cat README; mkdir out; echo built >out/file; echo the secret is $DEPLOY_TOKEN", "0",
			[]string{"a repository of the test", "the secret is [REDACTED]"},
		},
		{"fails", "exit 7", "7", nil},
		{
			"hostile", hostile, "137",
			[]string{"hidden", "token none", "no network", "no hook", "no configuration", "memory limit reached (512MiB)"},
		},
		{
			"after", "git status --short; cat README; pgrep sleep || echo no process is left", "0",
			[]string{"a repository of the test", "no process is left"},
		},
		{"cancelled", "echo begun; sleep 1000", "-1 cancel", []string{"begun", "ended by signal 15 (SIGTERM)"}},
	}
	var ids []string
	for _, j := range jobs {
		ids = append(ids, b.add(j.command, map[string]string{"BUILDKITE_ARTIFACT_PATHS": "out/*"}))
	}
	b.mu.Lock()
	b.jobs[ids[4]].cancel = true
	b.mu.Unlock()
	list := b.await(t, ids...)
	for i, j := range list {
		log := j.log()
		missing := slices.DeleteFunc(jobs[i].says, func(text string) bool { return strings.Contains(log, text) })
		if j.status != jobs[i].status || len(missing) > 0 || strings.Contains(log, "hunter2") {
			t.Errorf("%s: status %s, want %s; %q is not in the log:\n%s", jobs[i].name, j.status, jobs[i].status, missing, log)
		}
	}
	if got := list[0].artifacts["out/file"]; got != "built\n" {
		t.Errorf("the artifact is %q: %s", got, list[0].log())
	}
	if names := namesIn(t, taken); names != "" {
		t.Errorf("git ran a program of the job, outside the jail: %s", names)
	}
}
