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

// gitlabRunner returns GitLab's runner, which cannot be built from the Go proxy alone: modules that it needs
// (gitlab.com/gitlab-org/step-runner, labkit/v2, fleeting/taskscaler) are not there. docs/how-to/run-ci-jobs.md says how to
// get it. Without it, the other tests of this file's package speak the runner's protocol.
func gitlabRunner(t *testing.T) string {
	t.Helper()
	path := os.Getenv("CORRAL_GITLAB_RUNNER")
	if path == "" {
		path = filepath.Join(sandboxtest.ModuleRoot(t), ".cache", "gitlab-runner", "gitlab-runner")
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("GitLab's runner is not here: CORRAL_GITLAB_RUNNER names it")
	}
	return path
}

// run starts GitLab's runner, with corral as its custom executor, until the end of the test.
func (c *ciPlace) run(t *testing.T, concurrent int) *sandboxtest.Command {
	t.Helper()
	bin := filepath.Dir(c.front)
	if err := sandboxtest.CopyProgram(gitlabRunner(t), filepath.Join(bin, "gitlab-runner")); err != nil {
		t.Fatal(err)
	}
	var executor strings.Builder
	for _, verb := range []string{"config", "prepare", "run", "cleanup"} {
		fmt.Fprintf(&executor, "    %[1]s_exec = %[2]q\n    %[1]s_args = [\"ci\", \"gitlab\", %[1]q, \"--supervisor\", %[3]q, \"--dir\", %[4]q, "+
			"\"--layer\", \"64MiB\", \"--memory\", \"512MiB\"]\n", verb, c.front, c.daemon.Socket, c.dir)
	}
	home := filepath.Join(c.place.dir, "home")
	config := fmt.Sprintf(`concurrent = %d
check_interval = 1
[[runners]]
  name = "t"
  url = %q
  token = "runner-token"
  executor = "custom"
  environment = ["PATH=%s:/usr/local/bin:/usr/bin:/bin"]
  [runners.custom]
    graceful_kill_timeout = 60
%s`, concurrent, c.url, bin, executor.String())
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(home, "config.toml")
	if err := errors.Join(os.WriteFile(file, []byte(config), 0o600), os.Chown(file, c.uid, c.uid), os.Chown(home, c.uid, c.uid)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, "gitlab-runner"), "run", "--config", file,
		"--working-directory", home)
	cmd.Env, cmd.Dir = []string{"PATH=/usr/bin:/bin", "HOME=" + home}, home
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(c.uid), Gid: uint32(c.uid)}, Pdeathsig: syscall.SIGKILL,
	}
	return sandboxtest.Start(t, cmd)
}

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
	sandboxtest.Eventually(t, sandboxtest.Slow(5*time.Minute), fmt.Sprint("the jobs end: ", ids), func() bool {
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

// TestGitLabRunner runs a pipeline with GitLab's own runner: a job with artifacts and a cache, one that uses them, one that
// fails, a hostile one and one that is cancelled; then others in parallel. Statuses, logs and artifacts are right, secrets
// are masked, and nothing is left.
func TestGitLabRunner(t *testing.T) {
	gitlabRunner(t)
	c := newCIPlace(t)
	runner := c.run(t, 4)
	cache := []map[string]any{{"key": "k", "untracked": false, "paths": []string{"kept"}, "policy": "pull-push", "when": "on_success"}}
	build := c.add(t, map[string]any{
		"cache": cache,
		"artifacts": []map[string]any{{
			"name": "out", "untracked": false, "paths": []string{"out"}, "when": "on_success", "expire_in": "1 day",
			"artifact_type": "archive", "artifact_format": "zip",
		}},
	}, "cat README", "echo built >out", "echo kept >kept", `echo "the secret is $SECRET"`)
	state, log := c.ended(t, build)
	t.Log("the first job has ended")
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
		"cat "+c.place.dir+"/home/config.toml || echo hidden", "ls "+c.dir+"/jobs | wc -l", "curl -sS -m 5 "+c.url+"/ || echo no network",
		"(setsid sleep 1000 >/dev/null 2>&1 &)", "ln -s "+c.place.dir+" ../../link; chmod 0 ../..; tail /dev/zero")
	cancelled := c.add(t, nil, "echo begun", "sleep 1000")
	c.cancel(cancelled)
	if state, log := c.ended(t, use); state != "success" || !strings.Contains(log, "built\nkept") {
		t.Errorf("use: %s\n%s", state, log)
	}
	if state, log := c.ended(t, fails); state != "failed script_failure 7" && state != "failed script_failure 1" {
		// Runners before 17 do not read BUILD_EXIT_CODE_FILE.
		t.Errorf("fails: %s\n%s", state, log)
	}
	if state, log := c.ended(t, hostile); !strings.HasPrefix(state, "failed script_failure") || !strings.Contains(log, "hidden\n") ||
		!strings.Contains(log, "no network") || !strings.Contains(log, "limit of memory, 512MiB") || strings.Contains(log, "runner-token") {
		t.Errorf("hostile: %s\n%s", state, log)
	}

	var more []int64
	for n := range sandboxtest.Scale(45) {
		more = append(more, c.add(t, nil, fmt.Sprintf("test -f README && echo job %d", n)))
	}
	c.ended(t, more...)
	for n, id := range more {
		if state, log := c.ended(t, id); state != "success" || !strings.Contains(log, fmt.Sprintf("job %d\n", n)) {
			t.Errorf("%d: %s\n%s", id, state, log)
		}
	}
	sandboxtest.Eventually(t, sandboxtest.Slow(time.Minute), "the runner cleans up after the cancelled job", func() bool {
		left, err := os.ReadDir(filepath.Join(c.dir, "jobs"))
		return err == nil && len(left) == 0
	})
	if err := runner.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	sandboxtest.Eventually(t, sandboxtest.Slow(time.Minute), "the runner ends", func() bool {
		select {
		case <-runner.Ended:
			return true
		default:
			return false
		}
	})
	c.nothingLeft(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.strange) > 0 || strings.Contains(c.logs[cancelled], "Job succeeded") {
		t.Errorf("unknown requests %q; the cancelled job: %s", c.strange, c.logs[cancelled])
	}
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
