package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == enterCommand {
		os.Exit(enter(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == insideCommand {
		os.Exit(inside(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// ownMachines lets the test start machines, and returns the path of the program that does: this one.
func ownMachines(t *testing.T) (self string) {
	t.Helper()
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.Cgroups)
	remove, err := makeOwnDirs()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	if self, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	return self
}

// TestMachine: a test process sees nothing of others, and fails if it leaves something behind, each for one reason.
func TestMachine(t *testing.T) {
	self := ownMachines(t)
	for _, tt := range []struct {
		name, script string
		code         int
		want         string // all of the output, or with "…" at its end its beginning
	}{
		{"nothing", "exit 0", 0, ""},
		{"exit code", "exit 7", 7, ""},
		{"its own processes", `test "$(cat /proc/1/cmdline | tr '\0' ' ' | grep -c inside-machine)" = 1 && kill -0 $PPID && echo $PPID`, 0, "1\n"},
		{"a child that ended", "true & exit 0", 0, ""},
		{"a process", "sleep 1000 >/dev/null 2>&1 &", 1, "left on the machine: process …"},
		{"a mount", "mount -t tmpfs x /mnt", 1, "left on the machine: mount: …"},
		{"a mount that is gone", "mount -t tmpfs x /mnt && umount /mnt", 0, ""},
		{"a cgroup", `mkdir -p "$(awk '$3 ~ /^cgroup/ { print $2; exit }' /proc/mounts)/corral/one"`, 1, "left on the machine: cgroup: …"},
		{"an instance", "mkdir -p /run/corral/instances/one", 1, "left on the machine: instance: /run/corral/instances/one\n"},
		{"cgroups of its own", "cut -d: -f3 /proc/self/cgroup | sort -u", 0, "/tests\n"},
		{"a hostile configuration", "grep -c '^max_jobs: 1$' /etc/corral/config.yaml $HOME/.config/corral/config.yaml | cut -d: -f2 | tr -d '\\n'", 0, "11"},
		{"a hostile service", "test -S /run/corral/corral.sock", 0, ""},
		{"a state", "ls -A /var/lib/corral /run/corral/instances 2>/dev/null", 2, "/var/lib/corral:\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			out, err := exec.Command(self, enterCommand, dir, "/bin/sh", "-c", tt.script).CombinedOutput()
			code := 0
			if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Run does not wrap it
				code = exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			got, same := string(out), string(out) == tt.want
			if begin, found := strings.CutSuffix(tt.want, "…"); found {
				same = strings.HasPrefix(got, begin)
			}
			if code != tt.code || !same {
				t.Errorf("exit code %d, %q; want %d, %q", code, got, tt.code, tt.want)
			}
		})
	}
}

// TestAbandoned: the groups of a machine whose first process was killed are removed later, those of a running one are not, and a
// machine whose terminal is closed removes its own.
func TestAbandoned(t *testing.T) {
	self := ownMachines(t)
	killed, running := startMachine(t, self), startMachine(t, self)
	end := func(cmd *exec.Cmd, s os.Signal) {
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // by a signal, or with the code of one
	}
	end(killed, syscall.SIGKILL)
	if len(groupsOf(t, killed)) == 0 {
		t.Fatal("a killed process has removed its groups")
	}
	sandboxtest.Eventually(t, 10*time.Second, "the groups of the killed machine are removed", func() bool {
		if err := removeAbandoned(); err != nil {
			t.Log(err) // the kernel empties a group some time after its last process has gone
		}
		return len(groupsOf(t, killed)) == 0
	})
	if len(groupsOf(t, running)) == 0 {
		t.Error("the groups of a running machine were removed")
	}
	hangUp := endSignals()[0] // another one in a run that ignores it, as with nohup(1)
	end(running, hangUp)
	if left := groupsOf(t, running); len(left) > 0 {
		t.Errorf("left after the signal %s: %q", hangUp, left)
	}
}

// TestAbandonedElsewhere: groups of a killed machine are removed also if its run was in another group than this process, and others stay.
func TestAbandonedElsewhere(t *testing.T) {
	ownMachines(t)
	list, err := hierarchies("other-login")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range list {
		for _, name := range []string{machineGroup + "1/corral/test", machineGroup + "x"} {
			if err := os.MkdirAll(filepath.Join(h.group, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(func() {
		if err := removeGroups(list); err != nil {
			t.Error(err)
		}
	})
	if err := removeAbandoned(); err != nil {
		t.Fatal(err)
	}
	for _, h := range list {
		left, err := filepath.Glob(filepath.Join(h.group, machineGroup+"*"))
		if err != nil || len(left) != 1 || filepath.Base(left[0]) != machineGroup+"x" {
			t.Errorf("%q, %v", left, err)
		}
	}
}

// startMachine starts a machine that waits.
func startMachine(t *testing.T, self string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(self, enterCommand, t.TempDir(), "/bin/sh", "-c", "echo; exec sleep 1000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended already, unless the test failed
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// groupsOf returns the groups of a machine that exist.
func groupsOf(t *testing.T, machine *exec.Cmd) (found []string) {
	t.Helper()
	list, err := hierarchies(machineGroup + strconv.Itoa(machine.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range list {
		if _, err := os.Stat(h.group); err == nil {
			found = append(found, h.group)
		}
	}
	return found
}
