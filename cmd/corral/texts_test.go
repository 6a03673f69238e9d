package main

import (
	"os/exec"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// mistakes are command lines that people type, and what they read: what was given, what is accepted, what to do.
var mistakes = []struct{ args, want string }{
	// Sets of values.
	{"run --network pip true", "invalid value \"pip\" for --network: \"pip\" is not a preset: did you mean pypi? A host of this name is pip:443\nhint: corral run --help"},
	{"run --network npm:22 true", "invalid value \"npm:22\" for --network: \"npm:22\": npm is a preset, whose hosts have their own ports: use npm, or the name of a host\nhint: corral run --help"},
	{"session open --network cargoo", "invalid value \"cargoo\" for --network: \"cargoo\" is not a preset: did you mean cargo? A host of this name is cargoo:443\nhint: corral session open --help"},
	{"run --workspace ro true", "invalid value \"ro\" for --workspace: must be direct, overlay, readonly or none\nhint: corral run --help"},
	{"session open --workspace ro", "invalid value \"ro\" for --workspace: must be direct, overlay or readonly\nhint: corral session open --help"},
	{"repo add . --workspace rw", "--workspace rw: must be direct, overlay or readonly"},
	{"run --protect x true", "invalid value \"x\" for --protect: must be none, hooks or all\nhint: corral run --help"},
	{"serve --log-level trace", "invalid value \"trace\" for --log-level: must be debug, info, warn or error\nhint: corral serve --help"},
	// Sizes, durations, numbers.
	{"run --memory abc true", "invalid value \"abc\" for --memory: must be a size such as 512MiB, 1.5GiB or 4096\nhint: corral run --help"},
	{"run --disk -1 true", "invalid value \"-1\" for --disk: must be a size such as 512MiB, 1.5GiB or 4096\nhint: corral run --help"},
	{"session open --disk x", "invalid value \"x\" for --disk: must be a size such as 512MiB, 1.5GiB or 4096\nhint: corral session open --help"},
	{"run --output-limit x true", "invalid value \"x\" for --output-limit: must be a size such as 512MiB, 1.5GiB or 4096\nhint: corral run --help"},
	{"run --timeout 5min true", "invalid value \"5min\" for --timeout: must be a time such as 30s, 5m or 1h30m\nhint: corral run --help"},
	{"session open --idle x", "invalid value \"x\" for --idle: must be a time such as 30s, 5m or 1h30m\nhint: corral session open --help"},
	{"drain --timeout x", "invalid value \"x\" for --timeout: must be a time such as 30s, 5m or 1h30m\nhint: corral drain --help"},
	{"top --interval 5", "invalid value \"5\" for --interval: must be a time such as 30s, 5m or 1h30m\nhint: corral top --help"},
	{"run --cpus x true", "invalid value \"x\" for --cpus: must be a number of CPUs between 0.01 and 1000\nhint: corral run --help"},
	{"run --pids 0 true", "invalid value \"0\" for --pids: must be a positive integer\nhint: corral run --help"},
	{"output --max many", "invalid value \"many\" for --max: must be a number\nhint: corral output --help"},
	{"ps --json=maybe", "invalid value \"maybe\" for --json: must be true or false\nhint: corral ps --help"},
	// Variables: the value may be a secret.
	{"run --env BAD\u00a0NAME=1 true", "--env \"BAD NAME\"=…: the name must have only letters, digits and underscores, and not begin with a digit"},
	{"run --env 1X=hunter2 true", "--env \"1X\"=…: the name must have only letters, digits and underscores, and not begin with a digit"},
	{"run --env TOKEN true", "--env \"TOKEN\": must be NAME=VALUE\nhint: --env-pass NAME passes a variable of this process"},
	{"run --env-pass A-B true", "--env-pass \"A-B\": the name must have only letters, digits and underscores, and not begin with a digit"},
	// Unknown options and commands.
	{"run --mem 1g true", "unknown option --mem\nhint: did you mean --memory?"},
	{"run --output 1g true", "unknown option --output\nhint: did you mean --output-limit?"},
	{"help nope", "unknown command \"nope\"\nhint: corral help"},
	{"help run x", "unexpected argument \"x\"\nhint: corral help run"},
	{"sess", "unknown command \"sess\"\nhint: did you mean corral session?"},
	{"audit tial", "tial is not a command of corral audit: must be tail, show, verify or export\nhint: did you mean corral audit tail?"},
	{"rootfs add x", "add is not a command of corral rootfs: must be import, list or remove\nhint: corral rootfs --help"},
	// Commands without their arguments.
	{"kill", "no job given\nhint: corral ps lists those that run"},
	{"session exec", "no session given\nhint: corral session exec [--background] ID -- PROGRAM [ARG]; corral session list has the ids"},
	{"session exec --background x", "no program given\nhint: corral session exec ID -- PROGRAM [ARG]"},
	{"session exec --background --tty x true", "--background cannot be combined with --tty or --stdin: nobody can type to the job, and its input is empty"},
	{"session exec --jsn x true", "unknown option --jsn\nhint: did you mean --json?"},
	{"audit", "no command given: corral audit needs tail, show, verify or export\nhint: corral audit --help"},
	{"audit show", "wrong arguments for corral audit show\nhint: corral audit show JOB|SEQ"},
	{"network test", "wrong arguments for corral network test\nhint: corral network test HOST[:PORT] [--repo ID] [--config FILE]"},
	{"repo add", "wrong arguments for corral repo add\nhint: corral repo add DIR [--id ID] [--workspace direct|overlay|readonly] [--profile NAME] [--users NAME,...] [--config FILE]"},
	{"rootfs import x", "wrong arguments for corral rootfs import\nhint: corral rootfs import NAME SOURCE [OPTIONS]"},
	{"token create", "wrong arguments for corral token create\nhint: corral token create NAME [--repos ID,...] [--tools NAME,...] [--expires TIME] [--config FILE]"},
	{"index", "no command given: corral index needs stats, purge or rebuild\nhint: corral index --help"},
	{"index purg", "purg is not a command of corral index: must be stats, purge or rebuild\nhint: did you mean corral index purge?"},
	{"index purge", "purge removes the index\nhint: to confirm: corral index purge --yes"},
	{"cache", "no command given: corral cache needs list or prune\nhint: corral cache --help"},
	{"cache show", "show is not a command of corral cache: must be list or prune\nhint: corral cache --help"},
	{"cache list x", "unexpected argument \"x\"\nhint: corral cache --help"},
	{"ci", "no CI system given: must be gitlab\nhint: corral ci --help"},
	{"ci github", "github is not a CI system that calls corral: must be gitlab\nhint: corral ci --help"},
	{"ci gitlab", "no command given: corral ci gitlab needs config, prepare, run or cleanup\nhint: corral ci gitlab --help"},
	{"ci gitlab run x", "wrong arguments for corral ci gitlab run\nhint: corral ci gitlab run [OPTIONS] SCRIPT STAGE"},
	{"policy", "no command given: corral policy needs test\nhint: corral policy --help"},
	{"policy test", "wrong arguments for corral policy test\nhint: corral policy test REQUEST.json [--config FILE] [--repo DIR] [--json]"},
	{"completion", "no shell given: must be bash, zsh or fish\nhint: corral completion --help"},
	{"completion tcsh", "tcsh is not a supported shell: must be bash, zsh or fish\nhint: corral completion --help"},
	{"completion bash zsh", "unexpected argument \"zsh\"\nhint: corral completion --help"},
	{"output nope", "no stored output has the handle or job id nope\nhint: corral output lists what is stored"},
	{"token create x --expires tomorrow", "invalid value \"tomorrow\" for --expires: must be a time such as 30d, 12h or 90m, at most 3650d\nhint: corral token --help"},
	{"token rotate x --grace y", "invalid value \"y\" for --grace: must be a time such as 30d, 12h or 90m, at most 3650d\nhint: corral token --help"},
	{"run --account nobody-here true", "invalid value \"nobody-here\" for --account: no user has this name or number\nhint: getent passwd lists the users"},
	{"config", "no command given: corral config needs check, show, init, schema or token\nhint: corral config --help"},
}

// TestMistakes compares what the installed command says of mistakes.
func TestMistakes(t *testing.T) {
	for _, tt := range mistakes {
		t.Run(tt.args, func(t *testing.T) {
			args := strings.Fields(strings.ReplaceAll(tt.args, "\u00a0", "\x01"))
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "\x01", " ")
			}
			checkMistake(t, tt.want, args...)
		})
	}
}

// TestMistakesInJSON: with --json, an error is an object on standard output.
func TestMistakesInJSON(t *testing.T) {
	for args, want := range map[string]string{
		"session exec --background --json x":      `"error":{"message":"no program given","hint":"corral session exec ID -- PROGRAM [ARG]"}`,
		"session exec --background --json x true": `"error":{"message":"--background and --json cannot be combined: the output is stored"`,
	} {
		out, err := exec.Command(sandboxtest.Bin(t, "corral"), strings.Fields(args)...).Output()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s, want %s", args, err, out, want)
		}
	}
}

// TestMistakesOfPlace: what the supervisor refuses.
func TestMistakesOfPlace(t *testing.T) {
	sandboxtest.RequireJails(t)
	checkMistake(t, "/etc is refused as a repository, because it contains the system's configuration and secrets\nhint: use the directory of a project",
		"run", "--repo", "/etc", "true")
	checkMistake(t, "profile \"x\" is not known\nhint: must be default or strict", "run", "--profile", "x", "true")
	out, err := exec.Command(sandboxtest.Bin(t, "corral"), "run", "--repo", t.TempDir(), "--memory", "900TB", "true").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "memory: 818.5TiB is more than the operator allows, which is ") || strings.Contains(string(out), "KiB") {
		t.Errorf("900 TB: %v, %s", err, out)
	}
}

func checkMistake(t *testing.T, want string, args ...string) {
	t.Helper()
	cmd := exec.Command(sandboxtest.Bin(t, "corral"), args...)
	var stderr strings.Builder
	cmd.Stderr, cmd.Dir = &stderr, t.TempDir()
	_ = cmd.Run()
	if got := stderr.String(); cmd.ProcessState.ExitCode() != exitFailure || got != "corral: "+want+"\n" {
		t.Errorf("exit code %d, got\n%swant\ncorral: %s", cmd.ProcessState.ExitCode(), got, want)
	}
}
