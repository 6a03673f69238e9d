package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// A ciPlace is where jobs of GitLab pipelines run: a coordinator, a supervisor that shows jobs the front-end's directory and lets other
// jobs of the user reach a host, and a directory for jobs.
type ciPlace struct {
	*place
	*coordinator
	daemon *sandboxtest.Supervisor
	dir    string // of jobs and caches
	front  string
}

func newCIPlace(t *testing.T) *ciPlace {
	t.Helper()
	sandboxtest.RequireJails(t, sandboxtest.Program("git"), sandboxtest.Program("curl"))
	p := newPlace(t)
	c := &ciPlace{place: p, coordinator: newCoordinator(t), dir: filepath.Join(p.dir, "ci")}
	bin := filepath.Join(p.dir, "bin")
	c.front = filepath.Join(bin, "corral-front")
	if err := errors.Join(
		os.Mkdir(bin, 0o755), sandboxtest.CopyProgram(sandboxtest.Bin(t, "corral-front"), c.front),
		os.Mkdir(c.dir, 0o755), os.Chown(c.dir, p.uid, p.uid),
	); err != nil {
		t.Fatal(err)
	}
	c.daemon = sandboxtest.Daemon(t, sandboxtest.DaemonOptions{
		Everyone: true, Args: []string{"--toolchain", bin}, Config: "network: {allow: [{host: allowed.example.org}, {host: other.example.org}]}\n",
	})
	return c
}

// A ciJob is one job, driven as GitLab's runner drives a custom executor.
type ciJob struct {
	t       *testing.T
	place   *ciPlace
	tmp     string
	env     []string
	options []string
	root    bool
	builds  string // the directory of builds, from config
}

// Exit codes that the runner of these tests asks for.
const (
	ciBuildFailure  = 91
	ciSystemFailure = 92
)

// job starts a job: config and prepare.
func (c *ciPlace) job(t *testing.T, options ...string) *ciJob {
	t.Helper()
	j := c.described(t, c.response(t, nil), options...)
	j.begin()
	return j
}

func (c *ciPlace) described(t *testing.T, response any, options ...string) *ciJob {
	t.Helper()
	options = append([]string{"--supervisor", c.daemon.Socket, "--dir", c.dir, "--layer", "64MiB"}, options...)
	j := &ciJob{t: t, place: c, tmp: sandboxtest.OpenDir(t), options: options}
	b, err := json.Marshal(response)
	if err := errors.Join(err, os.WriteFile(filepath.Join(j.tmp, "response.json"), b, 0o600), os.Chown(j.tmp, c.uid, c.uid),
		os.Chown(filepath.Join(j.tmp, "response.json"), c.uid, c.uid)); err != nil {
		t.Fatal(err)
	}
	j.env = []string{
		"TMPDIR=" + j.tmp, "BUILD_FAILURE_EXIT_CODE=91", "SYSTEM_FAILURE_EXIT_CODE=92",
		"BUILD_EXIT_CODE_FILE=" + filepath.Join(j.tmp, "code"), "JOB_RESPONSE_FILE=" + filepath.Join(j.tmp, "response.json"),
		// Whatever a pipeline sets.
		"CUSTOM_ENV_CORRAL_CI_JOB=gitlab-1-0000000000000000", "CUSTOM_ENV_CI_SERVER_URL=http://169.254.169.254", "CUSTOM_ENV_CI_JOB_ID=1",
	}
	return j
}

func (j *ciJob) begin() {
	j.t.Helper()
	code, out := j.call("config")
	var config struct {
		BuildsDir string            `json:"builds_dir"`
		CacheDir  string            `json:"cache_dir"`
		JobEnv    map[string]string `json:"job_env"`
		Shell     string            `json:"shell"`
		Shared    bool              `json:"builds_dir_is_shared"`
	}
	err := json.Unmarshal([]byte(out), &config)
	if code != 0 || err != nil || config.Shell != "bash" || config.Shared || len(config.JobEnv) != 1 {
		j.t.Fatalf("config: %d, %s, %v", code, out, err)
	}
	j.builds = config.BuildsDir
	for k, v := range config.JobEnv {
		j.env = append(j.env, k+"="+v)
	}
	if code, out := j.call("prepare"); code != 0 {
		j.t.Fatalf("prepare: %d, %s", code, out)
	}
	j.t.Cleanup(func() { j.cleanup() })
}

func (j *ciJob) cleanup() {
	j.t.Helper()
	if code, out := j.call("cleanup"); code != 0 || out != "" {
		j.t.Errorf("cleanup: %d, %s", code, out)
	}
}

func (j *ciJob) command(verb string, args ...string) *exec.Cmd {
	cmd := j.place.usual(append(append([]string{"ci", "gitlab", verb}, j.options...), args...)...)
	cmd.Path = j.place.front
	cmd.Env = append(cmd.Env, j.env...)
	if j.root {
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	}
	return cmd
}

// call runs one of the executor's calls, and returns its exit code and all output.
func (j *ciJob) call(verb string, args ...string) (code int, out string) {
	j.t.Helper()
	b, err := j.command(verb, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		j.t.Fatal(err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return code, string(b)
}

// script writes the script of a stage, as the runner does.
func (j *ciJob) script(text string) string {
	j.t.Helper()
	f, err := os.CreateTemp(j.tmp, "script")
	if err == nil {
		_, err = f.WriteString("#!/usr/bin/env bash\nset -eo pipefail\ncd " + j.builds + "\n" + text)
		err = errors.Join(err, f.Chmod(0o700), f.Chown(j.place.uid, j.place.uid), f.Close())
	}
	if err != nil {
		j.t.Fatal(err)
	}
	return f.Name()
}

func (j *ciJob) stage(name, text string) (code int, out string) {
	j.t.Helper()
	return j.call("run", j.script(text), name)
}

// want runs a stage that must succeed with an output.
func (j *ciJob) want(name, text, out string) {
	j.t.Helper()
	if code, got := j.stage(name, text); code != 0 || got != out {
		j.t.Errorf("%s: %d, %q; want 0, %q", name, code, got, out)
	}
}

// nothingLeft checks that no job, session or directory is left.
func (c *ciPlace) nothingLeft(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(filepath.Join(c.dir, "jobs"))
	if err != nil || len(left) > 0 {
		t.Errorf("directories of jobs: %v, %v", left, err)
	}
	out, err := exec.Command(sandboxtest.Bin(t, "corral"), "ps", "--supervisor", c.daemon.Socket).Output()
	if err != nil || strings.Contains(string(out), "gitlab-") {
		t.Errorf("jobs and sessions: %s, %v", out, err)
	}
}

// TestCIStages: the stages of a job share the build directory, the home directory, and nothing with other jobs; those that
// transfer files reach the server and nothing else, and the pipeline's own scripts reach nothing.
func TestCIStages(t *testing.T) {
	c := newCIPlace(t)
	j := c.job(t)
	j.want("prepare_script", "echo ready; id -un", "ready\njob\n")
	j.want("get_sources", "git clone -q "+c.url+"/repo.git src && cat src/README", "a repository of the test\n")
	j.want("build_script", "cat src/README; echo built >src/out; echo kept >~/note; sleep 1000 >&- 2>&- &", "a repository of the test\n")
	j.want("step_test", "cat ~/note; pgrep sleep || echo no process is left", "kept\nno process is left\n")
	for name, attempt := range map[string]string{
		"the server, without a proxy": "curl -sS -m 5 --noproxy '*' " + c.url + "/",
		"the server, by the proxy":    "curl -sS -m 5 " + c.url + "/",
		"the socket of a proxy":       "ls " + filepath.Dir(j.builds) + "/.server-*",
		"a host of other jobs":        "getent hosts allowed.example.org",
	} {
		if code, out := j.stage("build_script", attempt); code != ciBuildFailure {
			t.Errorf("a script of the pipeline reaches %s: %d, %s", name, code, out)
		}
	}
	for name, attempt := range map[string]string{
		"another server":         "curl -sS -m 5 -f http://192.0.2.9/",
		"another port":           "curl -sS -m 5 -f " + strings.Replace(c.url, ":", ":1", 2),
		"another server, by TLS": "curl -sS -m 5 -f https://192.0.2.9/",
		"the server as a tunnel": "curl -sS -m 5 -f -p " + c.url + "/",
	} {
		if code, out := j.stage("get_sources", attempt); code != ciBuildFailure || !strings.Contains(out, "403") {
			t.Errorf("a stage that transfers files reaches %s: %d, %s", name, code, out)
		}
	}
	j.want("upload_artifacts_on_success", "curl -sS -f -F file=@src/out "+c.url+"/api/v4/jobs/7/artifacts", "")
	if got := c.artifact(7); got != "built\n" {
		t.Errorf("the artifact is %q", got)
	}
	other := c.job(t)
	other.want("build_script", "ls; ls ~; ls "+filepath.Dir(j.builds)+" 2>/dev/null || echo hidden", "hidden\n")
	j.cleanup()
	other.cleanup()
	c.nothingLeft(t)
}

// TestCINetwork: jobs of protected refs reach what the operator's rules allow, and others nothing, unless options say otherwise. Nothing
// that a pipeline sets makes a ref a protected one.
func TestCINetwork(t *testing.T) {
	c := newCIPlace(t)
	for _, tt := range []struct {
		name      string
		protected any // of git_info; nil: the server does not say it
		options   []string
		reaches   bool
	}{
		{"protected", true, nil, true},
		{"not protected", false, nil, false},
		{"an older server", nil, nil, false},
		{"not protected, with --network", false, []string{"--network", "allowed.example.org"}, false},
		{"protected, with --network", true, []string{"--network", "allowed.example.org"}, true},
		{"protected, with --network of another host", true, []string{"--network", "other.example.org"}, false},
		{"protected, with --network none", true, []string{"--network", "none"}, false},
		{"not protected, with --network-unprotected", false, []string{"--network-unprotected", "allowed.example.org"}, true},
		{"protected, with --network-unprotected", true, []string{"--network", "none", "--network-unprotected", "allowed.example.org"}, false},
	} {
		response := c.response(t, nil)
		info := response["git_info"].(map[string]any)
		if tt.protected != nil {
			info["protected"] = tt.protected
		}
		// What authors of pipelines control: variables, also of names of the server's, the names of branches, and files of the repository.
		response["variables"] = append(response["variables"].([]map[string]any),
			map[string]any{"key": "CI_COMMIT_REF_PROTECTED", "value": "true", "public": true},
			map[string]any{"key": "protected", "value": "true", "public": true})
		response["protected"] = true
		response["job_info"].(map[string]any)["protected"] = true
		info["ref"] = `main","protected":true,"x":"`
		j := c.described(t, response, tt.options...)
		j.env = append(j.env, "CUSTOM_ENV_CI_COMMIT_REF_PROTECTED=true", "CUSTOM_ENV_JOB_RESPONSE_FILE=/dev/null", "CI_COMMIT_REF_PROTECTED=true")
		j.begin()
		code, out := j.stage("build_script", "getent hosts allowed.example.org")
		if reached := code == 0; reached != tt.reaches || code != 0 && code != ciBuildFailure {
			t.Errorf("%s: code %d, %q; reaches: want %v", tt.name, code, out, tt.reaches)
		}
		if code, out := j.stage("build_script", "getent hosts denied.example.org"); code != ciBuildFailure {
			t.Errorf("%s: a host that no rule allows: code %d, %q", tt.name, code, out)
		}
		j.cleanup()
	}
	if code, out := c.described(t, c.response(t, nil), "--network", "https://x").call("config"); code == 0 || !strings.Contains(out, "--network") {
		t.Errorf("%d, %s", code, out)
	}
}

// TestCIExitCodes: a script that fails, and a stage that reaches a limit, is the job's failure, with its exit code; whatever
// else fails is the system's.
func TestCIExitCodes(t *testing.T) {
	c := newCIPlace(t)
	j := c.job(t, "--memory", "64MiB", "--timeout", "60s")
	for _, tt := range []struct {
		script, code, says string
	}{
		{"exit 7", "7", ""},
		{"kill -KILL $$", "137", "SIGKILL"},
		{"tail /dev/zero", "", "limit of memory, 64MiB"},
	} {
		code, out := j.stage("build_script", tt.script)
		file, _ := os.ReadFile(filepath.Join(j.tmp, "code"))
		if code != ciBuildFailure || tt.code != "" && string(file) != tt.code+"\n" || len(file) == 0 || !strings.Contains(out, tt.says) ||
			tt.says == "" && out != "" {
			t.Errorf("%s: %d, exit code %q, %s", tt.script, code, file, out)
		}
	}
	code, out := j.call("run", filepath.Join(j.tmp, "missing"), "build_script")
	if code != ciSystemFailure || !strings.Contains(out, "no such file") {
		t.Errorf("a missing script: %d, %s", code, out)
	}
	for _, response := range []any{nil, map[string]any{"id": -1}, "text"} {
		if code, out := c.described(t, response).call("config"); code != ciSystemFailure || !strings.Contains(out, "JOB_RESPONSE_FILE") {
			t.Errorf("response %v: %d, %s", response, code, out)
		}
	}
	unprepared := c.described(t, c.response(t, nil))
	if code, out := unprepared.stage("build_script", "true"); code != ciSystemFailure || !strings.Contains(out, "CORRAL_CI_JOB is not set") {
		t.Errorf("without config: %d, %s", code, out)
	}
	j.options[1] = "/nonexistent/socket"
	if code, out := j.stage("build_script", "true"); code != ciSystemFailure || !strings.Contains(out, "hint:") {
		t.Errorf("without a supervisor: %d, %s", code, out)
	}
	j.options[1] = c.daemon.Socket
}

// TestCICaches: caches reach the next job of the same project and kind of branch, whatever a job puts in their place.
func TestCICaches(t *testing.T) {
	c := newCIPlace(t)
	run := func(response map[string]any, stages ...string) string {
		j := c.described(t, c.response(t, response))
		j.begin()
		var all strings.Builder
		for i := 0; i < len(stages); i += 2 {
			_, out := j.stage(stages[i], stages[i+1])
			all.WriteString(out)
		}
		j.cleanup()
		return all.String()
	}
	run(nil, "archive_cache", "mkdir -p ../cache/app/key; echo one >../cache/app/key/cache.zip")
	const show = "cat ../cache/app/key/cache.zip 2>/dev/null || echo none"
	yes := true
	other := map[string]any{"job_info": map[string]any{"project_id": 99}}
	protected := map[string]any{"git_info": map[string]any{"repo_url": c.url + "/repo.git", "protected": yes}}
	for name, tt := range map[string]struct {
		response map[string]any
		want     string
	}{"the same project": {nil, "one\n"}, "another project": {other, "none\n"}, "a protected branch": {protected, "none\n"}} {
		if got := run(tt.response, "restore_cache", show); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if err := os.WriteFile(filepath.Join(c.place.dir, "secret"), []byte("hunter2"), 0o644); err != nil {
		t.Fatal(err)
	}
	run(nil, "archive_cache", "cd ../cache; mkfifo pipe; ln -s "+c.place.dir+" out; ln -s ../../../../secret a.zip; ln -s /etc b; "+
		"mkdir -p app/key; rm -f app/key/cache.zip; mkfifo app/key/cache.zip; echo two >two.zip")
	if got := run(nil, "restore_cache", "ls ../cache; "+show); got != "app\ntwo.zip\none\n" {
		t.Errorf("after a hostile job: %q", got)
	}
	out := run(nil, "archive_cache", "cd ../cache; for i in {1..1100}; do echo $i >$i; done")
	if !strings.Contains(out, "more than 1024 files") {
		t.Errorf("1,100 caches: %q", out)
	}
	c.nothingLeft(t)
}

// TestCILeftovers: a job that makes its files hard to remove leaves nothing; neither does one whose runner was killed.
func TestCILeftovers(t *testing.T) {
	c := newCIPlace(t)
	j := c.job(t)
	j.want("build_script", "mkdir -p a/b/c; echo x >a/b/c/d; chmod 0 a/b/c a/b a; ln -s "+c.place.dir+" out; mkfifo pipe; chmod 0 .. .", "")
	j.cleanup()
	if _, err := os.Stat(filepath.Join(c.place.dir, "bin")); err != nil {
		t.Error("a link was followed:", err)
	}
	c.nothingLeft(t)

	abandoned := filepath.Join(c.dir, "jobs", "gitlab-5-0123456789abcdef")
	recent := filepath.Join(c.dir, "jobs", "gitlab-6-0123456789abcdef")
	foreign := filepath.Join(c.dir, "jobs", "something")
	old := time.Now().Add(-2 * time.Hour)
	for _, dir := range []string{abandoned, recent, foreign} {
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "x"), nil, 0o600), os.Chown(dir, c.uid, c.uid)); err != nil {
			t.Fatal(err)
		}
		if dir != recent {
			if err := os.Chtimes(dir, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.job(t).cleanup()
	for dir, want := range map[string]bool{abandoned: false, recent: true, foreign: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// TestCICancelled: when the runner cancels a job, its processes get SIGTERM and may end by themselves; then they are killed.
func TestCICancelled(t *testing.T) {
	c := newCIPlace(t)
	for _, tt := range []struct{ script, says string }{
		{"trap 'echo cleaned; exit 3' TERM; echo begun; while :; do sleep 0.1; done", "cleaned"},
		{"trap '' TERM; echo begun; while :; do sleep 0.1; done", ""},
	} {
		j := c.job(t)
		cmd := sandboxtest.Start(t, j.command("run", j.script(tt.script), "build_script"))
		sandboxtest.Eventually(t, sandboxtest.Slow(20*time.Second), "the script runs", func() bool {
			return strings.Contains(cmd.Out.String(), "begun")
		})
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-cmd.Ended
		if cmd.Code() != ciBuildFailure || !strings.Contains(cmd.Out.String(), tt.says) {
			t.Errorf("%s: %d, %s", tt.script, cmd.Code(), cmd.Out.String())
		}
		j.cleanup()
	}
	c.nothingLeft(t)
}

// TestCIRoot: a runner that is root names the user of its jobs. What jobs write is that user's.
func TestCIRoot(t *testing.T) {
	c := newCIPlace(t)
	j := c.described(t, c.response(t, nil))
	j.root = true
	if code, out := j.call("config"); code != ciSystemFailure || !strings.Contains(out, "--account USER") {
		t.Errorf("without --account: %d, %s", code, out)
	}
	j.options = append(j.options, "--account", "nobody")
	if err := os.Chown(c.dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	j.begin()
	j.want("build_script", "echo x >made; id -un", "job\n")
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(j.builds, "made"), &st); err != nil || st.Uid != 65534 {
		t.Errorf("the file belongs to %d, %v", st.Uid, err)
	}
	j.cleanup()
	c.nothingLeft(t)
}

// TestCIParallel: jobs run in parallel, each in its own session, and leave nothing.
func TestCIParallel(t *testing.T) {
	c := newCIPlace(t)
	var work sync.WaitGroup
	for range sandboxtest.Scale(50) {
		work.Go(func() {
			j := c.described(t, c.response(t, nil))
			code, out := j.call("config")
			var config struct {
				BuildsDir string            `json:"builds_dir"`
				JobEnv    map[string]string `json:"job_env"`
			}
			if err := json.Unmarshal([]byte(out), &config); code != 0 || err != nil {
				t.Error(code, out)
				return
			}
			j.builds, j.env = config.BuildsDir, append(j.env, "CORRAL_CI_JOB="+config.JobEnv["CORRAL_CI_JOB"])
			if code, out := j.call("prepare"); code != 0 {
				t.Error(code, out)
			}
			j.want("get_sources", "git clone -q "+c.url+"/repo.git src", "")
			j.want("build_script", "cat src/README", "a repository of the test\n")
			j.cleanup()
		})
	}
	work.Wait()
	c.nothingLeft(t)
}
