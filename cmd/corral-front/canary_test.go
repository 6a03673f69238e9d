package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/front/commands"
	"corral/internal/test/sandboxtest"
)

// canaries are command lines for each command, by its name. FILE-X and DIR-X are a file and a directory of a user, and SOCKET is that
// of a supervisor.
var canaries = map[string][]string{
	"audit": {
		"tail --state DIR-state", "show 1 --state DIR-state", "verify --state DIR-state", "export --state DIR-state",
		"forward --state DIR-state", "forward --state DIR-state --config FILE-config",
	},
	"cache":   {"list", "list --state DIR-state", "prune --state DIR-state"},
	"changes": {"show s --supervisor FILE-socket", "diff s --supervisor SOCKET", "apply s --supervisor SOCKET", "discard s --supervisor SOCKET"},
	"ci": {
		"gitlab config", "gitlab prepare --supervisor SOCKET", "gitlab run --supervisor SOCKET FILE-script step_script",
		"gitlab cleanup --supervisor SOCKET", "gitlab prepare --dir DIR-jobs --supervisor SOCKET", "gitlab config --account DIR-name",
		"gitlab run --supervisor FILE-socket FILE-script step_script",
	},
	"agent": {
		"-- true", "claude", "--key-file FILE-key --program FILE-program claude", "--program /usr/bin/true --key-file FILE-key claude",
		"--repo DIR-repo --toolchain DIR-tools -- true", "--supervisor SOCKET -- true", "--supervisor FILE-socket --direct -- true",
	},
	"shell":      {"true", "-c true", "--help"},
	"completion": {"bash"},
	"config": {
		"check", "check FILE-config", "show FILE-config", "init FILE-config", "init DIR-new/config.yaml", "schema", "token x",
		"token x --write FILE-config",
	},
	"doctor": {
		"--supervisor SOCKET --state DIR-state", "--supervisor FILE-socket", "--state DIR-state", "--runtimes", "--runtimes --supervisor SOCKET", "--agents", "--agents --json",
	},
	"drain":             {"--supervisor FILE-socket", "--undo --supervisor SOCKET"},
	"codex-environment": {"--repo DIR-repo --config FILE-config", "--supervisor FILE-socket", "--repo . --supervisor SOCKET"},
	"exec-server":       {"--repo DIR-repo --config FILE-config", "--supervisor FILE-socket", "--repo . --supervisor SOCKET"},
	"help":              {"", "run", "serve"},
	"index": {
		"stats --config FILE-config --state DIR-state", "stats --state DIR-state", "purge --yes --state DIR-state", "rebuild --yes --state DIR-state",
	},
	"kill": {"job-1 --supervisor FILE-socket", "job-1 --supervisor SOCKET"},
	"logs": {"job-1 --supervisor FILE-socket", "job-1 --supervisor SOCKET"},
	"mcp":  {"--repo DIR-repo", "--repo .", "--config FILE-config", "--supervisor FILE-socket", "--supervisor SOCKET --repo DIR-repo"},
	"network": {
		"list --config FILE-config", "test example.org --config FILE-config", "allow example.org --all --config FILE-config",
		"deny example.org --all --config FILE-config", "authority show --state DIR-state", "authority rotate --state DIR-state",
		"log --state DIR-state", "authority rotate --state DIR-state --supervisor FILE-socket",
	},
	"output": {"--state DIR-state", "out_x --state DIR-state"},
	"policy": {"test FILE-request", "test FILE-request --config FILE-config", "test --connect example.org --config FILE-config"},
	"ps":     {"--supervisor FILE-socket", "--supervisor SOCKET"},
	"reload": {"--supervisor FILE-socket", "--supervisor SOCKET"},
	"repo": {
		"list --config FILE-config", "add DIR-repo --config FILE-config", "add . --config FILE-config", "remove x --config FILE-config",
		"add DIR-repo --config DIR-new/config.yaml",
	},
	"rootfs": {
		"import x FILE-source --supervisor SOCKET", "import x DIR-source --supervisor SOCKET", "import x FILE-source", "list --supervisor FILE-socket",
		"remove x --supervisor FILE-socket",
	},
	"run": {
		"-- true", "--repo DIR-repo -- true", "--cwd DIR-repo -- true", "--toolchain DIR-tools -- true", "--supervisor SOCKET -- true",
		"--supervisor SOCKET --repo DIR-repo -- true", "--supervisor FILE-socket -- true", "--session x --supervisor SOCKET -- true",
		"--workspace none --supervisor SOCKET -- ./FILE-program",
	},
	"serve": {"--repo DIR-repo", "--config FILE-config", "--supervisor FILE-socket --repo .", "--supervisor SOCKET --config FILE-config"},
	"session": {
		"open --supervisor SOCKET --repo DIR-repo", "open --supervisor SOCKET", "open --supervisor FILE-socket", "list --supervisor FILE-socket",
		"list --supervisor SOCKET", "exec x --supervisor SOCKET -- true", "exec --background x --supervisor SOCKET -- true",
		"exec --background x --supervisor FILE-socket -- true", "forward x 80 --supervisor FILE-socket", "forward x 80 --supervisor SOCKET",
		"close x --supervisor SOCKET",
	},
	"token": {
		"create x --config FILE-config", "create x --config DIR-new/config.yaml", "rotate x --config FILE-config", "revoke x --config FILE-config",
		"list --config FILE-config",
	},
	"top":     {"--supervisor FILE-socket", "--supervisor SOCKET"},
	"version": {""},
	// Programs that corral executes in its place.
	"session-background": {"--supervisor FILE-socket"}, "session-keeper": {"--supervisor SOCKET"}, "edit-config": {""},
	"session-review":  {"x"},
	"find-toolchains": {""}, "find-common-directory": {"DIR-repo"}, "ci-relay": {"FILE-socket true"},
}

// canaryVariables are variables that programs, their libraries and the Go runtime take paths from.
var canaryVariables = []string{
	"HOME=DIR", "XDG_CONFIG_HOME=DIR", "XDG_STATE_HOME=DIR", "XDG_CACHE_HOME=DIR", "XDG_DATA_HOME=DIR", "XDG_RUNTIME_DIR=DIR", "TMPDIR=DIR",
	"PWD=DIR", "TZ=FILE", "ZONEINFO=DIR", "TERMINFO=DIR", "TERM=xterm", "SSL_CERT_FILE=FILE", "SSL_CERT_DIR=DIR", "GOCOVERDIR=DIR",
	"GOROOT=DIR", "CREDENTIALS_DIRECTORY=DIR", "NOTIFY_SOCKET=FILE", "LOCPATH=DIR", "HOSTALIASES=FILE", "RESOLV_HOST_CONF=FILE",
	"JOB_RESPONSE_FILE=FILE", "BUILD_EXIT_CODE_FILE=FILE", "CORRAL_CI_JOB=gitlab-1-0123456789abcdef", "CORRAL_STATE=DIR", "PATH=/usr/bin:/bin",
}

// canariesAsRoot are the requests that programs may make as root, with the reason.
var canariesAsRoot = map[string]string{
	"corral-front: request 25": "FLUSH: a child that becomes corrald closes a file that its parent opened as the user",
	"corrald: request 3":       "GETATTR: the supervisor asks for the owner of a directory that it has opened with the user's rights",
	"corrald: request 1 of dir-tools": "LOOKUP: a toolchain is opened again to be mounted, through no link, after it was opened with the " +
		"user's rights",
}

// TestSudoCanaries: a user who may run corral through sudo, and sets every variable, cannot have root look up, read, make or change a
// file of the user's choice: not by an argument, a variable, the working directory or the user's configuration. The files are of a
// FUSE file system, which sees each request and as whom it is made.
func TestSudoCanaries(t *testing.T) {
	sandboxtest.RequireJails(t)
	user := sandboxtest.StartFileServer(t, sudoer)
	d := sandboxtest.Daemon(t, sandboxtest.DaemonOptions{})
	names := []string{"version"}
	for _, c := range commands.Corral().Commands {
		names = append(names, c.Name)
	}
	for _, name := range names {
		if canaries[name] == nil {
			t.Errorf("%s is a command and not in the table", name)
		}
	}
	for name, lines := range canaries {
		for _, line := range lines {
			place := strings.NewReplacer("FILE-", user.Dir+"/file-", "DIR-", user.Dir+"/dir-", "SOCKET", d.Socket)
			args := append([]string{name}, strings.Fields(line)...)
			for i := range args {
				args[i] = place.Replace(args[i])
			}
			runCanary(t, user, args)
			seen := slices.DeleteFunc(user.RootRequests(t, "corral", "corral-front", "corral-top", "corrald"), func(request string) bool {
				return canariesAsRoot[request] != ""
			})
			if len(seen) > 0 {
				t.Errorf("corral %s %s: as root:\n\t%s", name, line, strings.Join(seen, "\n\t"))
			}
		}
	}
}

// runCanary runs a command line as sudo does, in a directory of the user's, until it ends or is killed: it may serve.
func runCanary(t *testing.T, user *sandboxtest.FileServer, args []string) {
	t.Helper()
	program := "corral"
	if slices.Contains([]string{"session-background", "session-keeper", "edit-config", "find-toolchains", "ci-relay"}, args[0]) {
		program = "corral-front"
	}
	cmd := exec.Command(sandboxtest.Bin(t, program), args...)
	cmd.Dir = filepath.Join(user.Dir, "dir-cwd")
	for _, v := range canaryVariables {
		name, value, _ := strings.Cut(v, "=")
		switch value {
		case "DIR":
			value = filepath.Join(user.Dir, "dir-"+name)
		case "FILE":
			value = filepath.Join(user.Dir, "file-"+name)
		}
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Env = append(cmd.Env, "SUDO_UID="+strconv.Itoa(sudoer), "SUDO_GID="+strconv.Itoa(sudoer))
	p := sandboxtest.Start(t, cmd)
	if !p.EndsWithin(10 * time.Second) {
		_ = p.Process.Signal(syscall.SIGTERM)
		if !p.EndsWithin(time.Minute) {
			t.Errorf("%q does not end", args)
		}
	}
	t.Logf("%q: %d, %s%s", args, p.ProcessState.ExitCode(), p.Out.String(), p.Err.String())
}
