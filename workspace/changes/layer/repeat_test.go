package layer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// moves are edits that move files of the repository, between other changes of the same directories.
func moves(m at) {
	m.move("b", "d/b")    // unchanged
	m.move("run", "d/zz") // and then changed in place
	m.chmod("d/zz", 0o755)
	f, err := os.OpenFile(m.path("d/zz"), os.O_WRONLY|os.O_APPEND, 0)
	check(m.t, err)
	_, err = f.WriteString("exit 1\n")
	check(m.t, err, f.Close())
	m.move("d/y", "y")
	m.mkdir("new")
	m.move("d/sub/z", "new/z")
	m.move("a", "t")
	m.move("e/.git/config", "a")
	m.remove("d/sub")
	m.write("d/sub", "a file in place of a directory")
	m.mkdir("b")
	m.write("b/in", "a directory in place of a file")
	m.write("c", "new")
	m.write("d/a", "new")
	m.link("d/a", "d/l")
	m.mkdir("d/n")
	m.chmod("empty", 0o700)
	m.remove("e/.git/hooks")
}

// TestRepeatedAfterKill kills an apply before each of its system calls that write, and checks that each file then has
// its old or its new content, and that another apply has the result of one that was not killed.
func TestRepeatedAfterKill(t *testing.T) {
	build := func() *world {
		w := newWorld(t, project(t))
		moves(at{t, w.merged})
		return w
	}
	w := build()
	before, want := tree(t, w.repo), tree(t, w.merged)
	steps, finished := w.killed(-1)
	if !finished || steps < 20 {
		t.Fatalf("%d steps, finished: %v", steps, finished)
	}
	same(t, tree(t, w.repo), want)
	for n := range steps {
		w := build()
		if _, finished := w.killed(n); finished {
			continue // the number of steps differs a little
		}
		for path, s := range tree(t, w.repo) {
			if s[0] == '-' && s != before[path] && s != want[path] && !isTemp(filepath.Base(path)) {
				t.Errorf("killed before step %d of %d: %q is %s", n, steps, path, s)
			}
		}
		past(t)
		all := w.run("apply")
		if len(all.conflicts) > 0 || all.sum.Failed != "" {
			t.Errorf("killed before step %d of %d: %q %q", n, steps, conflicts(all), all.sum.Failed)
			continue
		}
		same(t, tree(t, w.repo), want)
		if left := w.run("list"); len(left.entries) > 0 {
			t.Errorf("killed before step %d of %d: left over: %q", n, steps, left.lines())
		}
	}
	t.Logf("%d steps", steps)
}

// TestRepeatedPartly applies each changed path by itself, and then the rest.
func TestRepeatedPartly(t *testing.T) {
	w := newWorld(t, project(t))
	moves(at{t, w.merged})
	for _, e := range w.run("list").entries {
		w := newWorld(t, project(t))
		moves(at{t, w.merged})
		want := tree(t, w.merged)
		for _, paths := range [][]string{{e.Path}, nil} {
			past(t)
			if all := w.run(append([]string{"apply"}, paths...)...); len(all.conflicts) > 0 || all.sum.Failed != "" {
				t.Errorf("%s, then %q: %q %q", e.Path, paths, conflicts(all), all.sum.Failed)
			}
		}
		same(t, tree(t, w.repo), want)
	}
}

// TestOwnersRemoval checks that the repository's owner's removal of a file that a job changed is a conflict, also in a
// directory that an apply has changed, and although the layer has removed other files that are nearly the same.
func TestOwnersRemoval(t *testing.T) {
	w := newWorld(t, func(repo string) {
		project(t)(repo)
		at{t, repo}.write("d/b", "two!")
	})
	r, m := at{t, w.repo}, at{t, w.merged}
	m.write("d/b", "job\n") // as long as the other ones
	m.remove("b")
	m.remove("a")
	m.write("d/n", "")
	past(t)
	r.remove("d/b")
	for range 2 {
		if got := conflicts(w.run("apply")); !slices.Equal(got, []string{"d/b: gone"}) {
			t.Fatalf("%q", got)
		}
		w.run("apply", "d/n")
	}
}

// killed runs an apply and kills it before the system call number n that changes a file. It returns the number of these
// calls that were made, and whether the apply finished.
func (w *world) killed(n int) (calls int, finished bool) {
	w.t.Helper()
	runtime.LockOSThread() // ptrace belongs to a thread
	defer runtime.UnlockOSThread()
	exe, err := os.Executable()
	check(w.t, err)
	cmd := exec.Command(exe, w.args([]string{"apply"})...)
	cmd.Env = append(os.Environ(), asTool+"=1", "GOMAXPROCS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	check(w.t, cmd.Start())
	defer cmd.Wait() //nolint:errcheck // the loop below has the status
	main := cmd.Process.Pid
	var st unix.WaitStatus
	_, err = unix.Wait4(main, &st, 0, nil)
	check(w.t, err, unix.PtraceSetOptions(main, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL))
	for tid, sig := main, 0; ; {
		if err := unix.PtraceSyscall(tid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
			w.t.Fatal(err)
		}
		tid, err = unix.Wait4(-1, &st, unix.WALL, nil)
		check(w.t, err)
		sig = 0
		switch {
		case st.Exited(), st.Signaled():
			if tid == main {
				return calls, st.Exited() && st.ExitStatus() == 0
			}
			tid = main // another thread: the others still run
		case st.StopSignal() == unix.SIGTRAP|0x80:
			if !writing(w.t, tid) {
				continue
			}
			if calls == n {
				check(w.t, cmd.Process.Kill())
			}
			calls++
		case st.StopSignal() != unix.SIGTRAP && st.StopSignal() != unix.SIGSTOP:
			sig = int(st.StopSignal())
		}
	}
}

// writers are the system calls that change a file of the repository or of the layer.
var writers = []uint64{
	unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT, unix.SYS_MKDIRAT, unix.SYS_SYMLINKAT, unix.SYS_FCHMOD, unix.SYS_FCHMODAT,
	unix.SYS_UTIMENSAT, unix.SYS_FREMOVEXATTR, unix.SYS_FTRUNCATE, unix.SYS_PWRITE64,
}

// writing reports whether a stopped thread is about to make such a call, or to create a file.
func writing(t testing.TB, tid int) bool {
	t.Helper()
	// struct ptrace_syscall_info, the part of PTRACE_SYSCALL_INFO_ENTRY (ptrace(2)).
	var info struct {
		op     uint8
		_      [3]uint8
		arch   uint32
		ip, sp uint64
		nr     uint64
		args   [6]uint64
	}
	const get, entry = 0x420e, 1
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, get, uintptr(tid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 && errno != unix.ESRCH {
		t.Fatal(fmt.Errorf("PTRACE_GET_SYSCALL_INFO: %w", errno))
	}
	if info.op != entry {
		return false
	}
	return slices.Contains(writers, info.nr) || info.nr == unix.SYS_OPENAT && info.args[2]&unix.O_CREAT != 0
}
