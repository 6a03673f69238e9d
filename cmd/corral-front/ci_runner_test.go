package main

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// run starts GitLab's runner, with corral as its custom executor, until the end of the test.
func (c *ciPlace) run(t *testing.T, concurrent int) *sandboxtest.Command {
	t.Helper()
	bin := filepath.Dir(c.front)
	if err := sandboxtest.CopyProgram(ciClient(t, "gitlab-runner"), filepath.Join(bin, "gitlab-runner")); err != nil {
		t.Fatal(err)
	}
	var executor strings.Builder
	for _, verb := range []string{"config", "prepare", "run", "cleanup"} {
		fmt.Fprintf(&executor, "    %[1]s_exec = %[2]q\n    %[1]s_args = [\"ci\", \"gitlab\", %[1]q, \"--supervisor\", %[3]q, \"--dir\", %[4]q, "+
			"\"--layer\", \"64MiB\", \"--memory\", \"512MiB\"]\n", verb, c.front, c.daemon.Socket, c.dir)
	}
	home, tmp := c.home(), filepath.Join(c.home(), "tmp")
	config := fmt.Sprintf(`concurrent = %d
check_interval = 1
[[runners]]
  name = "t"
  url = %q
  token = "runner-token"
  request_concurrency = 4
  executor = "custom"
  environment = ["PATH=%s:/usr/local/bin:/usr/bin:/bin"]
  [runners.feature_flags]
    FF_TIMESTAMPS = false # of lines of the log
  [runners.custom]
    graceful_kill_timeout = 60
%s`, concurrent, c.url, bin, executor.String())
	file := filepath.Join(home, "config.toml")
	if err := errors.Join(
		os.Mkdir(home, 0o755), os.Mkdir(tmp, 0o755), os.WriteFile(file, []byte(config), 0o600),
		os.Chown(file, c.uid, c.uid), os.Chown(home, c.uid, c.uid), os.Chown(tmp, c.uid, c.uid),
	); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, "gitlab-runner"), "run", "--config", file,
		"--working-directory", home)
	cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin", "HOME=" + home, "TMPDIR=" + tmp}, home
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(c.uid), Gid: uint32(c.uid)}, Pdeathsig: syscall.SIGKILL,
	}
	return sandboxtest.Start(t, cmd)
}

// home is the directory of the runner's user.
func (c *ciPlace) home() string { return filepath.Join(c.place.dir, "home") }

// add queues a job with a script, and returns its id.
func (c *ciPlace) add(t *testing.T, replace map[string]any, script ...string) int64 {
	t.Helper()
	all := map[string]any{"steps": steps(script...)}
	maps.Copy(all, replace)
	r := c.response(t, all)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, r)
	return r["id"].(int64)
}

// ended waits for jobs, and returns how the first of them ended, and its log.
func (c *ciPlace) ended(t *testing.T, ids ...int64) (state, log string) {
	t.Helper()
	sandboxtest.Eventually(t, sandboxtest.Slow(10*time.Minute), fmt.Sprint("the jobs end: ", ids), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, id := range ids {
			if c.states[id] == "" {
				return false
			}
		}
		return true
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	id := ids[0]
	return strings.TrimSpace(fmt.Sprint(c.states[id], " ", c.reasons[id], " ", c.codes[id])), c.logs[id]
}

// TestGitLabRunner runs a pipeline of five jobs with GitLab's own runner: a job with artifacts and a cache, one that uses them,
// one that fails, a hostile one and one that is cancelled. Then 50 run at the same time, each with an artifact, and every fifth
// fails. Statuses, logs and artifacts are right, secrets are masked, and nothing is left.
func TestGitLabRunner(t *testing.T) {
	ciClient(t, "gitlab-runner")
	sandboxtest.Leaks(t)
	c := newCIPlace(t)
	parallel := sandboxtest.Scale(50)
	runner := c.run(t, max(parallel, 4))
	cancelled := c.pipeline(t)
	c.gather(parallel)
	var more []int64
	for n := range parallel {
		script := fmt.Sprintf("test -f README && echo job %d | tee out; exit %d", n, exitOf(n))
		more = append(more, c.add(t, map[string]any{"artifacts": artifactOut("always")}, script))
	}
	c.ended(t, more...)
	for n, id := range more {
		want, text := "success", fmt.Sprintf("job %d\n", n)
		if exitOf(n) > 0 {
			want = fmt.Sprint("failed script_failure ", exitOf(n))
		}
		state, log := c.ended(t, id)
		if got := unzip(t, c.artifact(id), "out"); strings.TrimSpace(state) != want || !strings.Contains(log, text) || got != text {
			t.Errorf("%d: %s, artifact %q\n%s", id, state, got, log)
		}
	}
	sandboxtest.Eventually(t, sandboxtest.Slow(time.Minute), "the runner cleans up after the cancelled job", func() bool {
		left, err := os.ReadDir(filepath.Join(c.dir, "jobs"))
		return err == nil && len(left) == 0
	})
	if err := runner.Process.Signal(syscall.SIGQUIT); err != nil { // end when all jobs have ended
		t.Fatal(err)
	}
	if !runner.EndsWithin(sandboxtest.Slow(time.Minute)) {
		t.Fatal("the runner does not end")
	}
	c.nothingLeft(t)
	if names := namesIn(t, filepath.Join(c.home(), "tmp")); names != "" {
		t.Errorf("left in the runner's TMPDIR: %s", names)
	}
	if names := namesIn(t, c.home()); names != ".runner_system_id config.toml tmp" {
		t.Errorf("in the runner's directory: %s", names)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.strange) > 0 || strings.Contains(c.logs[cancelled], "Job succeeded") {
		t.Errorf("unknown requests %q; the cancelled job: %s", c.strange, c.logs[cancelled])
	}
}

// pipeline runs five jobs, and returns the one that is cancelled.
func (c *ciPlace) pipeline(t *testing.T) (cancelled int64) {
	t.Helper()
	cache := []map[string]any{{"key": "k", "untracked": false, "paths": []string{"kept"}, "policy": "pull-push", "when": "on_success"}}
	build := c.add(t, map[string]any{
		"cache": cache, "artifacts": artifactOut("on_success"),
	}, "cat README", "echo built >out", "echo kept >kept", `echo "the secret is $SECRET"`)
	state, log := c.ended(t, build)
	if state != "success" || !strings.Contains(log, "a repository of the test") || !strings.Contains(log, "the secret is [MASKED]") ||
		strings.Contains(log, "hunter2") || !strings.Contains(log, "with driver corral") {
		t.Fatalf("build: %s\n%s", state, log)
	}
	if got := unzip(t, c.artifact(build), "out"); got != "built\n" {
		t.Fatalf("the artifact is %q\n%s", got, log)
	}

	use := c.add(t, map[string]any{"cache": cache, "dependencies": []map[string]any{{
		"id": build, "name": "build", "token": fmt.Sprintf("token-%d", build),
		"artifacts_file": map[string]any{"filename": "out.zip", "size": len(c.artifact(build))},
	}}}, "cat out kept")
	fails := c.add(t, nil, "exit 7")
	hostile := c.add(t, nil,
		"cat "+c.home()+"/config.toml || echo hidden", "ls "+c.dir+"/jobs | wc -l", "curl -sS -m 5 "+c.url+"/ || echo no network",
		"(setsid sleep 1000 >/dev/null 2>&1 &)", "ln -s "+c.place.dir+" ../../link; chmod 0 ../..; tail /dev/zero")
	cancelled = c.add(t, nil, "echo begun", "sleep 1000")
	c.cancel(cancelled)
	if state, log := c.ended(t, use); state != "success" || !strings.Contains(log, "built\nkept") {
		t.Errorf("use: %s\n%s", state, log)
	}
	if state, log := c.ended(t, fails); state != "failed script_failure 7" {
		t.Errorf("fails: %s\n%s", state, log)
	}
	if state, log := c.ended(t, hostile); !strings.HasPrefix(state, "failed script_failure") || !strings.Contains(log, "hidden\n") ||
		!strings.Contains(log, "no network") || !strings.Contains(log, "limit of memory, 512MiB") || strings.Contains(log, "runner-token") {
		t.Errorf("hostile: %s\n%s", state, log)
	}
	return cancelled
}

// exitOf returns the exit code of the script of job n of those in parallel: every fifth fails.
func exitOf(n int) int {
	if n%5 == 4 {
		return n
	}
	return 0
}

// artifactOut describes the file out as the artifact of a job.
func artifactOut(when string) []map[string]any {
	return []map[string]any{{
		"name": "out", "untracked": false, "paths": []string{"out"}, "when": when, "expire_in": "1 day",
		"artifact_type": "archive", "artifact_format": "zip",
	}}
}

// namesIn returns the names in a directory, in order.
func namesIn(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func unzip(t *testing.T, archive, name string) string {
	t.Helper()
	z, err := zip.NewReader(strings.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Errorf("%v: %.100q", err, archive)
		return ""
	}
	f, err := z.Open(name)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}
