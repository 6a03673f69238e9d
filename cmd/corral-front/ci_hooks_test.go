package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// hooked returns a place whose PATH has a corral that uses the test's supervisor.
func hooked(t *testing.T) (p *place, path string) {
	t.Helper()
	sandboxtest.RequireJails(t, sandboxtest.Program("bash"))
	p = newPlace(t)
	d := daemon(t)
	bin := filepath.Join(p.dir, "bin")
	wrapper := fmt.Sprintf("#!/bin/sh\ncommand=$1\nshift\nexec %s/corral-program \"$command\" --supervisor %s \"$@\"\n", bin, d.Socket)
	if err := errors.Join(
		os.Mkdir(bin, 0o755), sandboxtest.CopyProgram(sandboxtest.Bin(t, "corral"), filepath.Join(bin, "corral-program")),
		os.WriteFile(filepath.Join(bin, "corral"), []byte(wrapper), 0o755), //nolint:gosec // a program
	); err != nil {
		t.Fatal(err)
	}
	p.file(t, "README", "the checkout\n")
	return p, bin + ":/usr/local/bin:/usr/bin:/bin"
}

// as runs a command as the place's user, and returns its exit code and all output.
func (p *place) as(t *testing.T, env []string, name string, args ...string) (code int, out string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Dir = env, p.repo
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.uid)}}
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode(), string(b)
	case err != nil:
		t.Fatal(err)
	}
	return 0, string(b)
}

// attempts are scripts of a pipeline, with the exit code and the output.
var attempts = []struct {
	script string
	code   int
	out    string
}{
	{"cat README; echo $CI; exit 3", 3, "the checkout\ntrue\n"},
	{"false | true; echo not reached", 1, ""},
	{"echo ${SECRET_TOKEN:-none} ${GITHUB_TOKEN:-none} ${BUILDKITE_AGENT_ACCESS_TOKEN:-none}", 0, "none none none\n"},
	{"ls /root /home/[!j]* 2>/dev/null || echo hidden", 0, "hidden\n"},
	{"timeout 5 bash -c '</dev/tcp/192.0.2.1/80' 2>/dev/null || echo no network", 0, "no network\n"},
	{"test $(ulimit -n) -eq 300 && echo limited", 0, "limited\n"},
}

// commandHook writes Buildkite's command hook into a directory, with the operator's file at a path of the test, and returns its
// path.
func (p *place) commandHook(t *testing.T, dir, operators string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(sandboxtest.ModuleRoot(t), "scripts", "ci", "buildkite-command"))
	if err != nil {
		t.Fatal(err)
	}
	hook, file := filepath.Join(dir, "command"), filepath.Join(p.dir, "corral.env")
	if err := errors.Join(
		os.WriteFile(hook, []byte(strings.Replace(string(text), "/etc/buildkite-agent/corral.env", file, 2)), 0o755), //nolint:gosec // a program
		os.WriteFile(file, []byte(operators), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	return hook
}

// TestBuildkiteHook runs the command hook with the variables that the agent sets.
func TestBuildkiteHook(t *testing.T) {
	p, path := hooked(t)
	hook := p.commandHook(t, p.dir, "CORRAL_ARGS='--nofile 300'\nCORRAL_ENV=WANTED\n")
	env := append([]string{
		"PATH=" + path, "BUILDKITE_BUILD_CHECKOUT_PATH=" + p.repo, "CI=true", "BUILDKITE_AGENT_ACCESS_TOKEN=hunter2", "WANTED=yes",
		"CORRAL_ARGS=--nofile 5000", "CORRAL_ENV=SECRET_TOKEN", // a pipeline's
	}, secrets...)
	for _, a := range attempts {
		if code, out := p.as(t, append(env, "BUILDKITE_COMMAND="+a.script), hook); code != a.code || out != a.out {
			t.Errorf("%s: %d, %q; want %d, %q", a.script, code, out, a.code, a.out)
		}
	}
	if _, out := p.as(t, append(env, "BUILDKITE_COMMAND=echo $WANTED"), hook); out != "yes\n" {
		t.Errorf("a variable that the operator names: %q", out)
	}
	p.reused(t, path, func(script string) { p.as(t, append(env, "BUILDKITE_COMMAND="+script), hook) })
}

// takeovers are scripts that have git run a program at the next use of the checkout, outside the jail.
var takeovers = []string{
	`printf '#!/bin/sh\ntouch ../taken\n' >.git/hooks/post-checkout && chmod +x .git/hooks/post-checkout`,
	`git config core.fsmonitor 'touch ../taken; false'`,
	`git config core.hooksPath .git && printf '#!/bin/sh\ntouch ../taken\n' >.git/post-checkout && chmod +x .git/post-checkout`,
	`cp -r .git .other && git --git-dir .other config core.fsmonitor 'touch ../taken; false' && mv .git .old && mv .other .git`,
	`rm -rf .git && git init -q && git config core.fsmonitor 'touch ../taken; false'`,
}

// reused fails if a script that step runs in the checkout takes over the git that the CI system runs there for the next build.
func (p *place) reused(t *testing.T, path string, step func(script string)) {
	t.Helper()
	taken := filepath.Join(p.dir, "taken")
	env := []string{"PATH=" + path, "HOME=" + p.repo}
	identity := []string{"-c", "user.name=ada", "-c", "user.email=ada@example.com"}
	for _, a := range takeovers {
		for _, args := range [][]string{{"init", "-q", "."}, {"add", "README"}, append(identity, "commit", "-qm", "one")} {
			if code, out := p.as(t, env, "git", args...); code != 0 {
				t.Fatal(out)
			}
		}
		if err := errors.Join(
			os.WriteFile(taken, nil, 0o600), os.Chown(taken, p.uid, p.uid), os.Chtimes(taken, time.Time{}, time.Unix(1, 0)),
		); err != nil {
			t.Fatal(err)
		}
		step(a)
		for _, args := range [][]string{{"clean", "-ffdxq"}, {"status"}, {"checkout", "-qf", "HEAD"}} {
			p.as(t, env, "git", args...) // may fail: the script can have removed what it needs
		}
		if info, err := os.Stat(taken); err != nil || info.ModTime().Unix() != 1 {
			t.Errorf("%s: git ran a program of the job, outside the jail (%v)", a, err)
		}
		if err := os.RemoveAll(filepath.Join(p.repo, ".git")); err != nil {
			t.Fatal(err)
		}
	}
}

// actionStep returns the script of the composite action's one step.
func actionStep(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(sandboxtest.ModuleRoot(t), "scripts", "ci", "github", "action.yml"))
	if err != nil {
		t.Fatal(err)
	}
	head, script, ok := strings.Cut(string(text), "      run: |\n")
	if !ok || strings.Contains(script, "${{") || strings.Count(head, "- shell:") != 1 {
		t.Fatalf("the action has another form:\n%s", text)
	}
	return strings.ReplaceAll(script, "\n        ", "\n")
}

// commandsStopped matches the output of the action's step: GitHub's runner obeys no workflow command in what is between the two lines, see
// https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands#stopping-and-starting-workflow-commands.
var commandsStopped = regexp.MustCompile(`(?s)^::stop-commands::([0-9a-f-]{36})\n(.*)\n::([0-9a-f-]{36})::\n$`)

// TestGitHubAction runs the step of the composite action as GitHub's runner does: bash, with the inputs as variables. What the script says
// is no workflow command, and the word that ends this is another each time.
func TestGitHubAction(t *testing.T) {
	p, path := hooked(t)
	env := append([]string{
		"PATH=" + path, "CORRAL_OPTIONS=--nofile 300", "CORRAL_ENV=WANTED", "CORRAL_DIR=" + p.repo,
		"CI=true", "WANTED=yes", "GITHUB_TOKEN=hunter2",
	}, secrets...)
	words := map[string]bool{}
	for _, a := range attempts {
		code, out := p.as(t, append(env, "CORRAL_RUN="+a.script), "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", actionStep(t))
		said := commandsStopped.FindStringSubmatch(out)
		if code != a.code || said == nil || said[1] != said[3] || words[said[1]] || said[2] != a.out {
			t.Fatalf("%s: %d, %q; want %d, %q", a.script, code, out, a.code, a.out)
		}
		words[said[1]] = true
	}
	const output = `exec bash --noprofile --norc -eo pipefail -c "$0" 2>/dev/null`
	_, out := p.as(t, append(env, "CORRAL_RUN=echo ::add-mask::x >&2"), "bash", "-c", output, actionStep(t))
	if said := commandsStopped.FindStringSubmatch(out); said == nil || said[2] != "::add-mask::x\n" {
		t.Errorf("standard error is not between the lines: %q", out)
	}
	p.reused(t, path, func(script string) {
		p.as(t, append(env, "CORRAL_RUN="+script), "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", actionStep(t))
	})
}

// ciClient returns the program of a CI system that scripts/setup-ci-clients has built.
func ciClient(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(sandboxtest.ModuleRoot(t), ".cache", "ci-clients", name)
	if _, err := os.Stat(path); err != nil {
		t.Skip(name + " is not here: run scripts/setup-ci-clients " + name)
	}
	return path
}

// TestActionByAct runs workflows with the action by act (https://github.com/nektos/act), which makes the checkout itself, as it
// does for the repository that it is started in. Hostile steps fail, read nothing of the runner, and give it no commands.
func TestActionByAct(t *testing.T) {
	act := ciClient(t, "act")
	sandboxtest.Leaks(t)
	p, path := hooked(t)
	action, err := os.ReadFile(filepath.Join(sandboxtest.ModuleRoot(t), "scripts", "ci", "github", "action.yml"))
	if err != nil {
		t.Fatal(err)
	}
	p.file(t, "jail/action.yml", string(action))
	home, program := filepath.Join(p.dir, "home"), filepath.Join(p.dir, "act")
	secret := filepath.Join(home, "secret")
	if err := errors.Join(
		os.Mkdir(home, 0o700), os.Chown(home, p.uid, p.uid), sandboxtest.CopyProgram(act, program),
		os.WriteFile(secret, []byte("hunter2"), 0o600), os.Chown(secret, p.uid, p.uid),
	); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + path, "HOME=" + home, "XDG_CACHE_HOME=" + home}
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", "."}, {"add", "."}, {"-c", "user.name=ada", "-c", "user.email=ada@example.com", "commit", "-qm", "one"},
	} {
		if code, out := p.as(t, env, "git", args...); code != 0 {
			t.Fatal(out)
		}
	}
	const workflow = "on: push\njobs:\n  test:\n    runs-on: self-hosted\n    steps:\n      - uses: actions/checkout@v4\n%s"
	jail := func(script string) string {
		return fmt.Sprintf("      - uses: ./jail\n        with: {run: '%s', options: --nofile 300 --memory 512MiB}\n", script)
	}
	const mask, show = "echo ::add-mask::plain", "      - run: echo this is plain\n"
	for _, tt := range []struct {
		steps      string
		code       int
		says, hush string
	}{
		{jail("cat README; ulimit -n"), 0, "the checkout", "hunter2"},
		{jail("cat README") + jail("cat "+secret+" || exit 9"), 1, "exit status 9", "hunter2"},
		{jail("timeout 5 bash -c \"</dev/tcp/192.0.2.1/80\" || exit 8"), 1, "exit status 8", ""},
		{jail("tail /dev/zero"), 1, "exit status 137", ""},                        // act can lose the end of what a failed step wrote
		{"      - run: " + mask + "\n" + show, 0, "this is ***", "this is plain"}, // a command that act obeys
		{jail(mask) + show, 0, "this is plain", "this is ***"},
	} {
		p.file(t, ".github/workflows/w.yml", fmt.Sprintf(workflow, tt.steps))
		code, out := p.as(t, env, program, "push", "-P", "self-hosted=-self-hosted", "--action-offline-mode")
		if code != tt.code || !strings.Contains(out, tt.says) || tt.hush != "" && strings.Contains(out, tt.hush) {
			t.Errorf("%s: %d, %s", tt.steps, code, out)
		}
	}
}
