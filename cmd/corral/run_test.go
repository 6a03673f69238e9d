package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"corral/internal/sandboxtest"
)

const jobEnvironment = `HOME=/home/job
LANG=C.UTF-8
LOGNAME=job
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin
SHELL=/bin/sh
TERM=dumb
TMPDIR=/tmp
USER=job
`

// repository makes one with things to run into.
func repository(t *testing.T) string {
	t.Helper()
	repo, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		os.MkdirAll(filepath.Join(repo, "sub", "deep"), 0o755),
		os.WriteFile(filepath.Join(repo, "plain"), []byte("plain text"), 0o644),
		os.WriteFile(filepath.Join(repo, "garbage"), []byte("\x7fELF, but no more"), 0o755),
		os.WriteFile(filepath.Join(repo, "lost"), []byte("#!/no/such/interpreter\n"), 0o755),
		os.WriteFile(filepath.Join(repo, "hello"), []byte("#!/bin/sh\necho hello $*\n"), 0o755),
		os.Symlink("/etc", filepath.Join(repo, "outside")),
		os.Symlink("sub", filepath.Join(repo, "inside")),
	)
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

// scripts are run twice: by a supervisor that listens, and some by one of their own.
var scripts = []script{
	{name: "output", args: []string{"--", "echo", "hello"}, stdout: "hello\n"},
	{name: "without --", args: []string{"echo", "--json", "-x"}, stdout: "--json -x\n"},
	{name: "-- in the arguments", args: []string{"--", "echo", "a", "--", "b"}, stdout: "a -- b\n"},
	{name: "empty and odd arguments", args: []string{"--", "printf", "[%s]", "", "a b", "\n", "\xff"}, stdout: "[][a b][\n][\xff]"},
	{name: "standard error", args: []string{"--", "sh", "-c", "echo oops >&2"}, stderr: []string{"oops\n"}},
	{name: "a program of the repository", args: []string{"--", "./hello", "you"}, stdout: "hello you\n"},

	{name: "exit 1", args: []string{"--", "false"}, code: 1},
	{name: "exit 255", args: []string{"--", "sh", "-c", "exit 255"}, code: 255},
	{name: "exit 124 of its own", args: []string{"--", "sh", "-c", "exit 124"}, code: 124},
	{name: "SIGTERM", args: []string{"--", "sh", "-c", "kill -TERM $$"}, code: 143, stderr: []string{"corral: the job was ended by signal 15 (SIGTERM)\n"}},
	{name: "SIGKILL", args: []string{"--", "sh", "-c", "kill -KILL $$"}, code: 137, stderr: []string{"signal 9 (SIGKILL)"}},
	{name: "SIGSEGV", args: []string{"--", "sh", "-c", "kill -SEGV $$"}, code: 139, stderr: []string{"signal 11 (SIGSEGV)"}},
	{name: "a real-time signal", args: []string{"--", "sh", "-c", "kill -40 $$"}, code: 168, stderr: []string{"signal 40 (SIG40)"}},
	{name: "no such program", args: []string{"--", "no-such-program"}, code: 127, stderr: []string{"corral: no-such-program: no such program in the jail\n"}},
	{name: "no such path", args: []string{"--", "./nowhere/prog"}, code: 127, stderr: []string{"no such program"}},
	{name: "a file as a directory", args: []string{"--", "./plain/prog"}, code: 127, stderr: []string{"no such program"}},
	{name: "no such interpreter", args: []string{"--", "./lost"}, code: 127, stderr: []string{"no such program"}},
	{name: "not executable", args: []string{"--", "./plain"}, code: 126, stderr: []string{"corral: ./plain cannot be executed: permission denied\n"}},
	{name: "a directory", args: []string{"--", "./sub"}, code: 126, stderr: []string{"cannot be executed: permission denied"}},
	{name: "no format of a program", args: []string{"--", "./garbage"}, code: 126, stderr: []string{"cannot be executed: exec format error"}},
	{name: "a control character in a name", args: []string{"--", "./\x1b[2J\nno"}, code: 127, stderr: []string{`corral: ./\x1b[2J\nno: no such`}},

	{name: "timeout", args: []string{"--timeout", "300ms", "--", "sleep", "1000"}, code: 124, stderr: []string{"corral: timeout (300ms): the job was ended\n"}},
	{name: "timeout in seconds", args: []string{"--timeout", "0.3", "--", "sleep", "1000"}, code: 124, stderr: []string{"timeout (300ms)"}},
	{name: "memory", args: []string{"--memory", "48MiB", "--", "tail", "/dev/zero"}, code: 137, stderr: []string{"corral: memory limit reached (48MiB): the job was ended\n"}},
	{name: "pids", args: []string{"--pids", "8", "--", "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do sleep 100 & done; wait"}, code: 2, stderr: []string{"corral: pids limit reached (8): "}},
	{name: "nofile", args: []string{"--nofile", "77", "--", "sh", "-c", "ulimit -n"}, stdout: "77\n"},
	{name: "file size", args: []string{"--file-size", "4096", "--", "sh", "-c", "ulimit -f; head -c 5000 /dev/zero >/tmp/x"}, stdout: "8\n", code: 153, stderr: []string{"File size limit exceeded"}},
	{name: "cpus", args: []string{"--cpus", "0.5", "--", "echo", "half"}, stdout: "half\n"},
	{name: "disk", args: []string{"--disk", "1MiB", "--", "sh", "-c", "head -c 64M /dev/zero >big; sleep 1000"}, code: 137, stderr: []string{"corral: disk limit reached: the job was ended\n"}},
	{name: "inodes", args: []string{"--inodes", "10", "--", "sh", "-c", "mkdir many; cd many; i=0; while [ $i -lt 5000 ]; do : >$i; i=$((i+1)); done; sleep 1000"}, code: 137, stderr: []string{"corral: inodes limit reached: the job was ended\n"}},
	{name: "tmp", args: []string{"--tmp", "1MiB", "--", "sh", "-c", "head -c 2M /dev/zero >/tmp/x"}, code: 1, stderr: []string{"No space left"}},
	{name: "more memory than there can be", args: []string{"--memory", "1024TiB", "--", "true"}, code: 125, stderr: []string{"corral: memory: more than the operator allows"}},
	{name: "profile", args: []string{"--profile", "strict", "--", "echo", "strictly"}, stdout: "strictly\n"},
	{name: "no such profile", args: []string{"--profile", "lax", "--", "true"}, code: 125, stderr: []string{"corral: profile \"lax\" is not known\nhint: one of"}},
	{name: "a long profile", args: []string{"--profile", strings.Repeat("default", 20), "--", "true"}, code: 125, stderr: []string{"is not known"}},

	{name: "working directory", args: []string{"--", "pwd"}, stdout: "REPO\n"},
	{name: "cwd", args: []string{"--cwd", "sub/deep", "--", "pwd"}, stdout: "REPO/sub/deep\n"},
	{name: "absolute cwd", args: []string{"--cwd", "REPO/sub", "--", "pwd"}, stdout: "REPO/sub\n"},
	{name: "cwd through a link", args: []string{"--cwd", "inside", "--", "/bin/pwd", "-P"}, stdout: "REPO/sub\n"},
	{name: "cwd that leaves by a link", args: []string{"--cwd", "outside", "--", "true"}, code: 125, stderr: []string{"corral: working directory \"outside\" escapes repository root\n"}},
	{name: "cwd that leaves", args: []string{"--cwd", "../x", "--", "true"}, code: 125, stderr: []string{"is not in the repository"}},
	{name: "no such cwd", args: []string{"--cwd", "nowhere", "--", "true"}, code: 125, stderr: []string{"corral: working directory \"nowhere\": no such file or directory\n"}},
	{name: "cwd that is a file", args: []string{"--cwd", "plain", "--", "true"}, code: 125, stderr: []string{"\"plain\": not a directory"}},

	{name: "direct", args: []string{"--", "sh", "-c", "echo x >direct && rm direct"}},
	{name: "no repository", args: []string{"--workspace", "none", "--", "sh", "-c", "pwd; ls -A; touch new; ls"}, stdout: "/tmp\nnew\n"},
	{name: "readonly", args: []string{"--workspace", "readonly", "--", "sh", "-c", "touch new"}, code: 1, stderr: []string{"Read-only file system"}},
	{name: "a sensitive path", args: []string{"--", "sh", "-c", "mkdir -p .git/hooks && echo x >.git/hooks/pre-commit"}, stderr: []string{"corral: sensitive path changed: .git/hooks/pre-commit\n"}},
	{name: "a sensitive path made of lines", args: []string{"--", "sh", "-c", "mkdir -p .git/hooks && echo x >'.git/hooks/a\ncorral: all is well\x1b[A'"}, stderr: []string{`corral: sensitive path changed: .git/hooks/a\ncorral: all is well\x1b[A` + "\n"}},

	{
		name: "environment", args: []string{"--", "sh", "-c", "env -u PWD | sort"},
		env: []string{"SECRET=hunter2", "LD_PRELOAD=", "HOME=/root", "LANG=de_DE", "SSH_AUTH_SOCK=/x", "CORRAL_X=1"}, stdout: jobEnvironment,
	},
	{name: "nothing of its own in it", args: []string{"--", "env"}, stdout: `PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin
HOME=/home/job
USER=job
LOGNAME=job
SHELL=/bin/sh
TMPDIR=/tmp
LANG=C.UTF-8
TERM=dumb
`},
	{name: "TZ", args: []string{"--", "sh", "-c", "echo $TZ"}, env: []string{"TZ=Asia/Tokyo"}, stdout: "Asia/Tokyo\n"},
	{name: "env-pass", args: []string{"--env-pass", "A", "--env-pass", "UNSET", "--", "sh", "-c", "echo $A ${B-none} ${UNSET-unset}"}, env: []string{"A=1", "B=2"}, stdout: "1 none unset\n"},
	{name: "env", args: []string{"--env", "A=x=y\nz", "--env", "TERM=vt100", "--", "sh", "-c", `echo "$A" $TERM`}, stdout: "x=y\nz vt100\n"},
	{name: "PATH", args: []string{"--env", "PATH=REPO", "--", "hello"}, stdout: "hello\n"},

	{name: "standard input is empty", args: []string{"--", "cat"}, stdin: "not for you", stdout: ""},
	{name: "standard input", args: []string{"--stdin", "--", "cat"}, stdin: "for you", stdout: "for you"},
	{name: "tty without a terminal", args: []string{"--tty", "--", "true"}, code: 125, stderr: []string{"corral: --tty: standard input is no terminal\nhint: "}},

	{name: "output limit", args: []string{"--output-limit", "5", "--", "echo", "123456789"}, stdout: "12345", stderr: []string{"corral: output limit reached: 5 bytes dropped\n"}},
	{name: "output at its limit", args: []string{"--output-limit", "5", "--", "printf", "12345"}, stdout: "12345"},
	{name: "a limit for each stream", args: []string{"--output-limit", "3", "--", "sh", "-c", "echo 123456; echo 123456 >&2"}, stdout: "123", stderr: []string{"123", "limit reached: 8 bytes"}},
	{name: "an endless line", args: []string{"--output-limit", "4", "--timeout", "1s", "--", "sh", "-c", "cat /dev/zero | tr '\\0' x"}, stdout: "xxxx", code: 124, stderr: []string{"timeout (1s)", "output limit reached"}},
}

func TestScripts(t *testing.T) {
	sandboxtest.RequireJails(t)
	d := serve(t)
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			s.args = append([]string{"run", "--supervisor", d.socket, "--repo", "REPO"}, s.args...)
			s.play(t, repository(t))
		})
	}
}

// TestOwnSupervisor runs what is different when root has named no supervisor: who reads the repository, and who ends.
func TestOwnSupervisor(t *testing.T) {
	sandboxtest.RequireJails(t)
	for _, s := range scripts {
		switch s.name {
		case "output", "exit 1", "no such program", "timeout", "memory", "cwd", "cwd that leaves by a link", "a sensitive path",
			"environment", "standard input", "no such profile":
			t.Run(s.name, func(t *testing.T) {
				s.args = append([]string{"run", "--repo", "REPO"}, s.args...)
				s.play(t, repository(t))
			})
		}
	}
}

// TestFrontSlack: what corral becomes, as it waits for requests, has the timer slack in every thread.
func TestFrontSlack(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root) // to look
	cmd := command(t, "corral", "mcp", "--repo", repository(t))
	requests, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, cmd)
	slack := func() (list []string) {
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.Process.Pid))
		for _, thread := range threads {
			b, _ := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns")
			list = append(list, strings.TrimSpace(string(b)))
		}
		return list
	}
	sandboxtest.Eventually(t, sandboxtest.Slow(time.Minute), "it is corral-front", func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.Process.Pid))
		return string(b) == "corral-front\n" && len(slack()) > 1
	})
	for _, s := range slack() {
		if s != strconv.Itoa(frontSlack) {
			t.Errorf("%q, want %d", slack(), frontSlack)
			break
		}
	}
	requests.Close()
	p.ends(t)
}

// TestCommands are uses without a job.
func TestCommands(t *testing.T) {
	sandboxtest.RequireJails(t)
	for _, s := range []script{
		{name: "nothing", code: 125, stderr: []string{"Usage:"}},
		{name: "help", args: []string{"help"}, stdout: usage},
		{name: "--help", args: []string{"--help"}, stdout: usage},
		{name: "help run", args: []string{"help", "run"}, stdout: runUsage},
		{name: "run --help", args: []string{"run", "--help"}, stdout: runUsage},
		{name: "run -h", args: []string{"run", "-h", "--", "true"}, stdout: runUsage},
		{name: "ps --help", args: []string{"ps", "--help"}, stdout: psUsage},
		{name: "help ps", args: []string{"help", "ps"}, stdout: psUsage},
		{name: "no program", args: []string{"run"}, code: 125, stderr: []string{"corral: no program given\nhint: corral run -- PROGRAM"}},
		{name: "unknown option", args: []string{"run", "--bogus", "true"}, code: 125, stderr: []string{"corral: unknown option --bogus\nhint: corral run --help\n"}},
		{name: "ps with an argument", args: []string{"ps", "x"}, code: 125, stderr: []string{`corral: unexpected argument "x"`}},
		{name: "an unknown option of ps", args: []string{"ps", "--all"}, code: 125, stderr: []string{"unknown option --all\nhint: corral ps --help\n"}},
		{name: "no repository", args: []string{"run", "--repo", "REPO/nowhere", "true"}, code: 125, stderr: []string{"nowhere\": no such file or directory\n"}},
		{name: "a file as repository", args: []string{"run", "--repo", "REPO/plain", "true"}, code: 125, stderr: []string{"plain\" is no directory\n"}},
		{name: "the whole host", args: []string{"run", "--repo", "/", "true"}, code: 125, stderr: []string{"because it is the whole host", "corral: the supervisor did not start\n"}},
		{name: "a home", args: []string{"run", "--repo", "/root", "true"}, code: 125, stderr: []string{"because it is the home directory"}},
		{name: "the system", args: []string{"run", "--repo", "/usr/bin", "true"}, code: 125, stderr: []string{"it holds the system's programs"}},
		{name: "the current directory", args: []string{"run", "true"}, code: 125, stderr: []string{"because it is the whole host"}},
		{name: "toolchain of a stranger's supervisor", args: []string{"run", "--repo", "REPO", "--supervisor", "/x", "--toolchain", "/opt", "true"}, code: 125, stderr: []string{"corral: --toolchain is for the supervisor that root starts"}},
	} {
		t.Run(s.name, func(t *testing.T) { s.play(t, repository(t)) })
	}
	if got := corral(t, "version"); got.code != 0 || !strings.HasPrefix(got.stdout, "corral ") {
		t.Errorf("version: %+v", got)
	}
	if got := corral(t, "rnu"); got.code == 0 || !strings.Contains(got.stderr, "corral") {
		t.Errorf("rnu: %+v", got)
	}
}
