package cgroup

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// childEnv makes the test binary act as a job; its value is a key of children.
const childEnv = "CORRAL_CGROUP_CHILD"

func TestMain(m *testing.M) {
	play, ok := children[os.Getenv(childEnv)]
	if !ok {
		os.Exit(m.Run())
	}
	// The first byte arrives once all groups are joined.
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		os.Exit(1)
	}
	play()
}

var children = map[string]func(){
	"idle":  func() { fmt.Println("ready"); rest() },
	"eat":   eat,
	"forks": forks,
	"spin":  spin,
	"storm": func() { fmt.Println("ready"); storm(100) },
	"swarm": func() { fmt.Println("ready"); storm(500) },
	"crowd": crowd,
	"joins": joins,
}

// rest waits to be killed. It returns if the test ends first, which closes the pipe.
func rest() {
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// eat starts three idle processes and exceeds its memory limit.
func eat() {
	for range 3 {
		if pid, _ := fork(); pid == 0 {
			sleepForever()
		}
	}
	fmt.Println("ready")
	var all [][]byte
	for range 2048 {
		page := make([]byte, 1<<20)
		for n := 0; n < len(page); n += 4096 {
			page[n] = 1
		}
		all = append(all, page)
	}
	fmt.Println("ate", len(all), "MiB")
	rest()
}

// forks forks until fork fails, at most 500 times.
func forks() {
	for n := range 500 {
		pid, errno := fork()
		switch {
		case errno != 0:
			fmt.Println("refused", int(errno))
			rest()
			return
		case pid == 0:
			sleepForever()
		case n == 499:
			fmt.Println("never refused")
		}
	}
}

func spin() {
	fmt.Println("ready")
	end := time.Now().Add(time.Minute)
	for n := 0; time.Now().Before(end); n++ {
		_ = n
	}
}

// crowd runs a shell that starts a thousand sleeping processes.
func crowd() {
	const script = "n=0; while [ $n -lt 1000 ]; do sleep 600 & n=$((n+1)); done; echo ready; wait"
	fmt.Println(syscall.Exec("/bin/sh", []string{"sh", "-c", script}, nil))
}

// joins forks a single-threaded process that joins the groups whose tasks files are its descriptors from 3 on.
func joins() {
	pid, _ := fork()
	if pid == 0 {
		joinThenSleep()
	}
	fmt.Println(pid)
	rest()
}

//go:norace
//go:nosplit
func joinThenSleep() {
	zero := byte('0')
	for fd := uintptr(3); ; fd++ {
		if _, _, errno := syscall.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&zero)), 1); errno != 0 {
			break
		}
	}
	sleepForever()
}

// storm runs chains of processes, each in its own session, that fork a successor and exit, over and over: none of
// them lives long. Each chain ends after 2000 processes; the test sets the limit of processes.
func storm(lines int) {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	for n := 0; n < lines; {
		switch pid, errno := fork(); {
		case errno == 0 && pid == 0:
			hop(2000)
		case errno == 0:
			n++
		}
		// Zombies count against the limit.
		for pid := 1; pid > 0; pid, _ = unix.Wait4(-1, nil, unix.WNOHANG, nil) {
		}
	}
	for {
		if _, err := unix.Wait4(-1, nil, 0, nil); err == unix.ECHILD {
			return
		}
	}
}

// hop and its callees run after a fork that the Go runtime does not know about: they only make system calls and are
// nosplit, since a stack check could yield to threads that do not exist in the child.
//
//go:norace
//go:nosplit
func hop(times int) {
	_, _, _ = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
	for ; times > 0; times-- {
		pid, errno := fork()
		sleep(0, 1_000_000)
		if errno == 0 && pid != 0 {
			break
		}
	}
	_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
}

//go:norace
//go:nosplit
func sleepForever() {
	for {
		sleep(3600, 0)
	}
}

//go:norace
//go:nosplit
func sleep(seconds, nanoseconds int64) {
	ts := [2]int64{seconds, nanoseconds}
	_, _, _ = syscall.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// fork calls fork(2) directly: a Go process has at least four threads, too heavy for these tests.
//
//go:norace
//go:nosplit
func fork() (pid uintptr, errno syscall.Errno) {
	pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	return pid, errno
}

// A run is a child process that acts as a job.
type run struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts a child, moves it into all of the job's groups, and then lets it proceed.
func start(t testing.TB, g *Job, what string) *run {
	t.Helper()
	r := launch(t, what, g.Dir())
	if err := g.Attach(r.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	r.play()
	return r
}

// launch starts a child, in the group opened as fd unless fd is -1. The child waits for play.
func launch(t testing.TB, what string, fd int, files ...*os.File) *run {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"="+what, "GOMAXPROCS=1")
	cmd.Stderr, cmd.ExtraFiles = os.Stderr, files
	if fd >= 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &run{t, cmd, in, bufio.NewReader(out)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return r
}

func (r *run) play() {
	r.t.Helper()
	if _, err := r.in.Write([]byte{'.'}); err != nil {
		r.t.Fatal(err)
	}
}

// line reads a line that the child prints.
func (r *run) line() string {
	r.t.Helper()
	line, err := r.out.ReadString('\n')
	if err != nil {
		r.t.Fatalf("child ended early: %v", err)
	}
	return strings.TrimSpace(line)
}

// killed waits for the child to end and fails the test unless SIGKILL ended it.
func (r *run) killed() {
	r.t.Helper()
	_ = r.cmd.Wait()
	if ws, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != unix.SIGKILL {
		r.t.Errorf("child ended with %v, want SIGKILL", r.cmd.ProcessState)
	}
}
