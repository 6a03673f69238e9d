package isolate

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/fronttest"
	"corral/internal/test/sandboxtest"
	frontend "corral/isolate/client"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// victimRepo is the environment variable with the victim's repository.
const victimRepo = "CORRAL_TEST_CHILD_REPO"

// Roles of a supervisor that is killed. A root of the session's own takes a second to prepare: the supervisor reads all of /usr for it.
const (
	victim         = "victim"
	victimWithRoot = "victim with a root"
)

// beVictimWithRoot is like beVictim in a session with a root of its own, whose job has changed a system directory.
func beVictimWithRoot(s *Supervisor) error {
	return runVictim(s, job.SessionSpec{Root: true}, `open my $f, ">", "/etc/mine" or die; print $f "x"; `)
}

// beVictim runs a job in a session with an overlay.
func beVictim(s *Supervisor) error { return runVictim(s, job.SessionSpec{}, "") }

// runVictim runs a session's job that executes script, starts more processes in sessions of their own and prints a line when all
// are up. It never ends by itself.
func runVictim(s *Supervisor, spec job.SessionSpec, script string) error {
	ours, file, err := wire.Pair()
	if err != nil {
		return err
	}
	theirs, err := wire.NewConn(file)
	if err != nil {
		return err
	}
	go s.ServeConn(theirs, host.Peer{UID: owner})
	stdin, _, err := os.Pipe()
	if err != nil {
		return err
	}
	r, stderr, err := os.Pipe()
	if err != nil {
		return err
	}
	go func() { _, _ = io.Copy(os.Stderr, r) }()
	for _, f := range []*os.File{stdin, stderr, os.Stdout} {
		if err := f.Chown(owner, owner); err != nil {
			return err
		}
	}
	c := frontend.New(ours)
	spec.Repo, spec.Workspace, spec.Disk = os.Getenv(victimRepo), job.Overlay, fronttest.Small
	ss, err := c.OpenSession(context.Background(), spec)
	if err != nil {
		return err
	}
	run, err := c.Start(job.Spec{
		Repo: spec.Repo, Session: ss.ID, Workspace: job.Overlay, Env: environment, Args: []string{
			"perl", "-MPOSIX", "-e",
			script + `for (1..3) { next if fork; setsid; exit if fork; sleep 1000 while 1 } $| = 1; print "up\n"; sleep 1000 while 1`,
		},
	}, job.Stdio{Stdin: stdin, Stdout: os.Stdout, Stderr: stderr}, nil)
	if err != nil {
		return err
	}
	result, err := run.Wait()
	return fmt.Errorf("its job ended: %+v, %w", result, err)
}

// kill starts a supervisor in the role of a victim, kills it when its job is up, and returns its instance and its processes.
func kill(t *testing.T, role string, change ...func(*Config)) (instance string, pids []int) {
	t.Helper()
	c := config(t)
	for _, f := range change {
		f(&c)
	}
	loops := len(layers(t))
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(childEnv(role, c), victimRepo+"="+newRepo(t))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	pids = descendants(t, cmd.Process.Pid)
	if len(layers(t)) <= loops {
		t.Error("no layer is in use, so this test proves nothing")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if line != "up\n" || err != nil {
		t.Fatalf("the supervisor to be killed said %q, %v", line, err)
	}
	return c.Instance, pids
}

// descendants lists the descendants of a process, in any namespace.
func descendants(t *testing.T, pid int) []int {
	t.Helper()
	b, err := exec.Command("sh", "-c", `cat /proc/[0-9]*/stat 2>/dev/null | sed 's/^\([0-9]*\) (.*) . \([0-9]*\) .*/\1 \2/'`).Output()
	if len(b) == 0 {
		t.Fatal(err)
	}
	children := map[int][]int{}
	for line := range strings.Lines(string(b)) {
		var child, parent int
		if _, err := fmt.Sscan(line, &child, &parent); err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	var list []int
	for todo := []int{pid}; len(todo) > 0; todo = todo[1:] {
		list = append(list, children[todo[0]]...)
		todo = append(todo, children[todo[0]]...)
	}
	return list
}

// TestKilledSupervisor: when a supervisor is killed, every process of its jails ends; the next supervisor clears the
// rest, and does not touch running instances.
func TestKilledSupervisor(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	f := newFront(t)
	l := f.Waiting()
	before := layers(t)
	instance, pids := kill(t, victimWithRoot)
	if len(pids) < 6 {
		t.Errorf("processes %v: too few", pids)
	}
	eventually(t, func() string {
		var alive []string
		for _, pid := range pids {
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(b), ") Z ") {
				alive = append(alive, fmt.Sprintf("%d (%s)", pid, comm(pid)))
			}
		}
		return strings.Join(alive, ", ")
	})
	eventually(t, func() string {
		for _, l := range layers(t) {
			if strings.Contains(l, "(deleted)") && !slices.Contains(before, l) {
				return l
			}
		}
		return ""
	})
	if len(traces(instance)) == 0 {
		t.Error("nothing is left to clear, so this test proves nothing")
	}
	next := frontOf(t, supervise(t), nil, f.Repo)
	if left := traces(instance); len(left) > 0 {
		t.Errorf("not cleared: %q", left)
	}
	next.C = connect(t, next.s, host.Peer{UID: owner})
	next.Sh("true")

	if err := l.Signal(int(unix.SIGTERM), false); err != nil {
		t.Fatal(err)
	}
	if d, err := l.End(); err != nil || d.ExitCode != 5 {
		t.Errorf("the running instance's job: %+v, %v", d.Result, err)
	}
	f.Sh("true")
}
