package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"corral/internal/sandboxtest"
)

// jobState is what a job says of what it may have inherited.
const jobState = `umask; grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | wc -l; cat; pwd`

// jobDefaults is what it says whatever corral was started with; ls has one descriptor of its own.
const jobDefaults = "0022\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n4\nREPO\n"

// TestOddState: whoever starts corral, and with what: the job sees the defaults.
func TestOddState(t *testing.T) {
	sandboxtest.RequireJails(t)
	for _, tt := range []struct {
		name string
		wrap []string // executes its arguments
	}{
		{"nothing odd", []string{"env"}},
		{"umask 0", []string{"sh", "-c", `umask 0; exec "$@"`, "-"}},
		{"umask 777", []string{"sh", "-c", `umask 777; exec "$@"`, "-"}},
		{"ignored signals", []string{"sh", "-c", `trap '' HUP INT QUIT PIPE CHLD TERM USR1 ALRM; exec "$@"`, "-"}},
		{"blocked signals", []string{"perl", "-e", `use POSIX; sigprocmask(SIG_BLOCK, POSIX::SigSet->new(1..15, 17, 34)) or die; exec @ARGV`}},
		{"standard input closed", []string{"sh", "-c", `exec "$@" <&-`, "-"}},
		{"no terminal, session leader", []string{"setsid", "-w"}},
		{"low priority", []string{"nice", "-n", "19"}},
		{"small limits", []string{"sh", "-c", `ulimit -S -c 0; ulimit -S -n 256; exec "$@"`, "-"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sandboxtest.Require(t, sandboxtest.Program(tt.wrap[0]))
			repo := repository(t)
			cmd := command(t, "corral", "run", "--repo", repo, "--", "sh", "-c", jobState)
			cmd.Args = append(append([]string{}, tt.wrap...), append([]string{cmd.Path}, cmd.Args[1:]...)...)
			cmd.Path = lookPath(t, tt.wrap[0])
			got := start(t, cmd).ends(t)
			if want := strings.ReplaceAll(jobDefaults, "REPO", repo); got.code != 0 || got.stdout != want || got.stderr != "" {
				t.Errorf("%+v, want %q", got, want)
			}
		})
	}
}

func lookPath(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range []string{"/usr/bin", "/bin"} {
		if file := filepath.Join(dir, name); stat(file) == nil {
			return file
		}
	}
	t.Fatalf("no %s", name)
	return ""
}

// TestStreamsClosed: without standard output the job runs, and its output goes nowhere, least of all into a file that
// happens to get the number.
func TestStreamsClosed(t *testing.T) {
	sandboxtest.RequireJails(t)
	repo := repository(t)
	cmd := command(t, "corral", "run", "--repo", repo, "--", "sh", "-c", "echo out; echo err >&2; echo done >file")
	cmd.Args = append([]string{"sh", "-c", `exec "$@" <&- >&- 2>&-`, "-", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	if got := start(t, cmd).ends(t); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if b, err := os.ReadFile(filepath.Join(repo, "file")); err != nil || string(b) != "done\n" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestLeakedDescriptors: what corral's caller left open is closed before anybody else could have it.
func TestLeakedDescriptors(t *testing.T) {
	sandboxtest.RequireJails(t)
	repo := repository(t)
	secret, err := os.Open(filepath.Join(repo, "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	cmd := command(t, "corral", "run", "--repo", repo, "--stdin", "--", "sh", "-c", "ls /proc/self/fd | wc -l; echo ready; read line")
	for range 50 {
		cmd.ExtraFiles = append(cmd.ExtraFiles, secret)
	}
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, cmd)
	p.ready(t)
	if got := p.out.String(); got != "4\nready\n" {
		t.Errorf("the job has other descriptors than its own: %q", got)
	}
	links, err := filepath.Glob("/proc/" + strconv.Itoa(supervisor(t, p.Process.Pid)) + "/fd/*")
	if err != nil || len(links) == 0 {
		t.Errorf("%q, %v", links, err)
	}
	for _, link := range links {
		if target, _ := os.Readlink(link); strings.HasSuffix(target, "/plain") {
			t.Errorf("the supervisor has it: %s", link)
		}
	}
	input.Close()
	if got := p.ends(t); got.code != 1 { // read found the end
		t.Errorf("%+v", got)
	}
}

// TestRootIsGivenUp: while the job runs, corral is nobody, without a group or a way back; its supervisor alone is root.
func TestRootIsGivenUp(t *testing.T) {
	sandboxtest.RequireJails(t)
	for _, tt := range []struct {
		env  []string
		want string // of the user id; "" is any but root's
	}{
		{nil, ""},
		{[]string{"SUDO_UID=61234", "SUDO_GID=61235"}, "61234"},
		{[]string{"SUDO_UID=0", "SUDO_GID=0"}, ""},
	} {
		cmd := command(t, "corral", "run", "--repo", repository(t), "--stdin", "--", "sh", "-c", "echo ready; read line")
		cmd.Env = append(cmd.Env, tt.env...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Groups: []uint32{0, 4}}}
		input, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		p := start(t, cmd)
		p.ready(t)
		tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(p.Process.Pid) + "/task/*/status")
		if len(tasks) == 0 {
			t.Error("no thread")
		}
		for _, task := range tasks {
			checkThread(t, task, tt.want)
		}
		input.Close()
		p.ends(t)
	}
}

func checkThread(t *testing.T, file, uid string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return // it ended meanwhile
	}
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		got[name] = strings.Fields(value)
	}
	for _, name := range []string{"Uid", "Gid"} {
		for _, id := range got[name] {
			if id == "0" || name == "Uid" && uid != "" && id != uid {
				t.Errorf("%s: %s: %q", file, name, got[name])
			}
		}
	}
	if len(got["Groups"]) != 0 || got["NoNewPrivs"][0] != "1" || strings.Trim(got["CapPrm"][0]+got["CapEff"][0], "0") != "" {
		t.Errorf("%s: groups %q, no_new_privs %q, capabilities %q %q", file, got["Groups"], got["NoNewPrivs"], got["CapPrm"], got["CapEff"])
	}
}

// TestNoDirectory: corral works from a directory that is gone, if the repository is named, and else says why not.
func TestNoDirectory(t *testing.T) {
	sandboxtest.RequireJails(t)
	repo := repository(t)
	for _, tt := range []struct {
		args []string
		code int
		out  string // in stdout or stderr
	}{
		{[]string{"run", "--repo", repo, "--", "pwd"}, 0, repo + "\n"},
		{[]string{"run", "--", "pwd"}, 125, "no such file or directory"},
	} {
		cmd := command(t, "corral", tt.args...)
		cmd.Args = append([]string{"sh", "-c", `mkdir gone && cd gone && rmdir ../gone && exec "$@"`, "-", cmd.Path}, cmd.Args[1:]...)
		cmd.Path, cmd.Dir = "/bin/sh", t.TempDir()
		if got := start(t, cmd).ends(t); got.code != tt.code || !strings.Contains(got.stdout+got.stderr, tt.out) {
			t.Errorf("%q: %+v", tt.args, got)
		}
	}
}
