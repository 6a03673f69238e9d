package isolate

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/cell"
	"corral/isolate/host"
	"corral/job"
)

// standing returns the supervisor's jails.
func (s *Supervisor) standing() []cell.JailState { return s.cells.Inspect().Jails }

// TestJailShared: jobs of one repository and profile share a jail, others do not.
func TestJailShared(t *testing.T) {
	f := newFront(t)
	other := frontOf(t, f.s, f.C, newRepo(t))
	strict := f.Spec("true")
	strict.Profile = "strict"
	for _, tt := range []struct {
		name string
		run  func()
		want int
	}{
		{"first", func() { f.Sh("true") }, 1},
		{"second", func() { f.Sh("true") }, 1},
		{"another repository", func() { other.Sh("true") }, 2},
		{"another profile", func() { f.Run(strict) }, 3},
		{"again", func() { f.Sh("true"); other.Sh("true"); f.Run(strict) }, 3},
	} {
		if tt.run(); len(f.s.standing()) != tt.want || len(blocks(f.s.InstanceName())) != tt.want {
			t.Errorf("%s: %d jails and %d blocks, want %d", tt.name, len(f.s.standing()), len(blocks(f.s.InstanceName())), tt.want)
		}
	}
}

// TestIdleJailDropped: an unused jail is removed with all its resources; one in use stays.
func TestIdleJailDropped(t *testing.T) {
	f := newFront(t, func(c *Config) { c.JailIdle = 20 * time.Millisecond })
	l, err := f.Start(f.Spec("sh", "-c", "echo up; read x; echo $x"))
	if err != nil {
		t.Fatal(err)
	}
	l.Until("up")
	j := f.s.standing()[0]
	frontOf(t, f.s, f.C, f.Repo).Sh("sleep 0.1") // longer than the idle timeout
	if _, err := l.In.WriteString("well\n"); err != nil {
		t.Error(err)
	}
	if d, err := l.End(); err != nil || d.Out != "up\nwell\n" {
		t.Errorf("%q, %v", d.Out, err)
	}
	eventually(t, func() string {
		if n := len(f.s.standing()); n > 0 {
			return fmt.Sprintf("%d jails", n)
		}
		return strings.Join(blocks(f.s.InstanceName()), ", ")
	})
	eventually(t, func() string {
		if dir := f.s.instance.Dir + "/jails/" + j.Name; exists(dir) {
			return dir
		}
		for _, trace := range traces(f.s.InstanceName()) {
			if exists(trace + "/" + j.Name) {
				return trace
			}
		}
		return ""
	})
	if got := f.Sh("echo again"); got != "again" {
		t.Errorf("%q", got)
	}
}

// TestInitKilled: when a jail's process 1 is killed, its jobs are lost, and the next job gets a new jail.
func TestInitKilled(t *testing.T) {
	f := newFront(t)
	for range 3 {
		l := f.Waiting()
		if err := unix.Kill(f.s.standing()[0].InitPID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if d, err := l.End(); err != nil || d.Status != job.Lost {
			t.Errorf("%+v, %v", d.Result, err)
		}
		eventually(t, func() string {
			d, err := f.Try(f.Spec("echo", "well"))
			if err != nil || d.Out != "well\n" {
				return fmt.Sprintf("%q, %v", d.Out, err) // the old jail is still being removed
			}
			return ""
		})
	}
}

// TestStubKilled: a job whose process 1 is killed from outside is lost; other jobs of the jail are not.
func TestStubKilled(t *testing.T) {
	f := newFront(t)
	kept, l := f.Waiting(), f.Waiting()
	if err := unix.Kill(parent(t, newest(t, f.s)), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if d, err := l.End(); err != nil || d.Status != job.Lost {
		t.Errorf("%+v, %v", d.Result, err)
	}
	if err := kept.Signal(int(unix.SIGTERM), false); err != nil {
		t.Fatal(err)
	}
	if d, err := kept.End(); err != nil || d.ExitCode != 5 {
		t.Errorf("%+v, %v", d.Result, err)
	}
}

// newest returns the first process of the job that was started last.
func newest(t *testing.T, s *Supervisor) int {
	t.Helper()
	list := s.jobs.entries(host.Peer{})
	if len(list) == 0 {
		t.Fatal("no job")
	}
	pid, last := 0, uint64(0)
	for _, p := range processes(t, s, "perl") {
		if start := field(t, p, 22); start >= last && field(t, p, 4) != uint64(pid) {
			pid, last = p, start
		}
	}
	// A job has two processes; the first is the parent of the other.
	if up := parent(t, pid); comm(up) == "perl" {
		return up
	}
	return pid
}

// field returns a number of proc_pid_stat(5); the names of these processes contain no space.
func field(t *testing.T, pid, n int) uint64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	v, err := strconv.ParseUint(strings.Fields(string(b))[n-1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func parent(t *testing.T, pid int) int { return int(field(t, pid, 4)) }

func comm(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // no name if it has exited
	return strings.TrimSpace(string(b))
}

// TestClose: closing a supervisor ends its jobs, reports that to their clients, and refuses new ones.
func TestClose(t *testing.T) {
	s, err := New(config(t))
	if err != nil {
		t.Fatal(err)
	}
	s.config.Own = true
	f := frontOf(t, s, connect(t, s, host.Peer{UID: owner}), newRepo(t))
	l := f.Waiting()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if d, err := l.End(); d.Status != job.Lost {
		t.Errorf("%+v, %v", d.Result, err)
	}
	if _, err := f.Try(f.Spec("true")); !errors.Is(err, job.ErrUnavailable) {
		t.Errorf("a new job: %v", err)
	}
	for _, left := range traces(s.InstanceName()) {
		t.Errorf("left behind: %s", left)
	}
}

// TestMainThread: libcontainer moves threads into jails, but never the main thread, to which /proc/self refers.
func TestMainThread(t *testing.T) {
	before, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	f := sharedFront(t)
	for range 5 {
		frontOf(t, f.s, f.C, newRepo(t)).Sh("true")
	}
	if after, err := os.Readlink("/proc/self/ns/mnt"); err != nil || after != before {
		t.Errorf("%s, was %s: %v", after, before, err)
	}
}
