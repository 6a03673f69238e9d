package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

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

// TestMachine: a test process sees nothing of others, and fails if it leaves something behind, each for one reason.
func TestMachine(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root, sandboxtest.Cgroups)
	remove, err := makeOwnDirs()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
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
