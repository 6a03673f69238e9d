package sandboxtest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Leaks fails the test if, two seconds after its end, something exists that did not exist at the call: a goroutine, a
// descriptor, a mount, a cgroup named corral*, a process. Namespaces are covered, because each is held by a process, a
// descriptor or a mount.
//
// The check runs after the clean-ups that the test registers after the call, so call it first. It covers the goroutines
// and descriptors of the whole process, so the test must not be parallel. While it runs, no other process runs a test that
// needs root.
func Leaks(t testing.TB) {
	t.Helper()
	holdMachine(t, unix.LOCK_EX)
	warm(t)
	before := census()
	t.Cleanup(func() {
		t.Helper()
		if t.Skipped() {
			return
		}
		for _, what := range leftovers(before, time.Duration(slowness())*2*time.Second) {
			t.Errorf("leaked: %s", what)
		}
	})
}

// warm makes the runtime open the descriptors of its poller, which it keeps.
func warm(t testing.TB) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	_ = w.Close()
}

// leftovers returns the entries that are not in before and that exist for the whole timeout. It returns early if there
// are none. The timeout is counted in looks: on a machine that stands still for a while, what ends needs as much longer as this process.
func leftovers(before map[string]string, timeout time.Duration) []string {
	const pause = 10 * time.Millisecond // there is no event for the end of the last mount or cgroup
	looks := timeout / pause
	var left map[string]string
	for first := true; ; first = false {
		now := census()
		if first {
			left = now
		}
		for id := range left {
			_, still := now[id]
			_, old := before[id]
			if old || !still {
				delete(left, id)
			}
		}
		if looks--; len(left) == 0 || looks < 0 {
			break
		}
		time.Sleep(pause)
	}
	found := make([]string, 0, len(left))
	for _, what := range left {
		found = append(found, what)
	}
	slices.Sort(found)
	return found
}

// census returns everything that may leak: a description by identity.
func census() map[string]string {
	all := map[string]string{}
	for _, count := range []func(map[string]string){goroutines, descriptors, mountPoints, cgroups, processes} {
		count(all)
	}
	return all
}

func goroutines(all map[string]string) {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		id, _, _ := strings.Cut(stack, " [")
		// The first signal.Notify starts this goroutine, which never ends.
		if !strings.Contains(stack, "os/signal.signal_recv") {
			all[id] = stack
		}
	}
}

func descriptors(all map[string]string) {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if name == strconv.Itoa(int(dir.Fd())) {
			continue
		}
		if target, err := os.Readlink("/proc/self/fd/" + name); err == nil {
			what := "descriptor " + name + " → " + target
			all[what] = what
		}
	}
}

func mountPoints(all map[string]string) {
	list, _ := mounts()
	for _, m := range list {
		all["mount "+m.id+" "+m.point] = fmt.Sprintf("mount of %s on %s", m.fsType, m.point)
	}
}

// machineGroup is the prefix of the cgroups of other test processes started by scripts/test, which are the roots of their
// cgroup namespaces.
const machineGroup = "sandboxtest-"

func cgroups(all map[string]string) {
	for _, m := range cgroupMounts() {
		_ = filepath.WalkDir(m.point, func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // it was removed meanwhile
			}
			if d.IsDir() && strings.HasPrefix(d.Name(), machineGroup) {
				return fs.SkipDir
			}
			if d.IsDir() && strings.HasPrefix(d.Name(), "corral") {
				all["cgroup "+name] = "cgroup " + name
				return fs.SkipDir // a cgroup cannot be removed before those below it
			}
			return nil
		})
	}
}

// A process is an entry of /proc.
type process struct {
	pid, parent int
	name, state string
	start       string // clock ticks since boot; identifies the process together with pid
}

// processes adds descendants of this process, and possible orphans among them: children of an ancestor of this process
// that are in other namespaces. This leaves out the shells of other users of the machine.
func processes(all map[string]string) {
	table := map[int]process{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := readProcess(pid); ok {
				table[pid] = p
			}
		}
	}
	self := os.Getpid()
	for _, p := range table {
		switch {
		case descends(table, p.pid, self):
		case descends(table, self, p.parent) && !sameNamespaces(p.pid):
		default:
			continue
		}
		all[fmt.Sprintf("process %d %s", p.pid, p.start)] = fmt.Sprintf("process %d (%s), state %s, child of %d",
			p.pid, p.name, p.state, p.parent)
	}
}

// readProcess reads proc_pid_stat(5); ok is false if the process is gone.
func readProcess(pid int) (p process, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, false
	}
	// The name is in parentheses and may contain parentheses.
	stat := string(b)
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return p, false
	}
	f := strings.Fields(stat[end+1:]) // starts with the third field
	if len(f) < 20 {
		return p, false
	}
	parent, err := strconv.Atoi(f[1])
	return process{pid: pid, parent: parent, name: stat[open+1 : end], state: f[0], start: f[19]}, err == nil
}

// descends reports whether pid is a descendant of ancestor.
func descends(table map[int]process, pid, ancestor int) bool {
	for range len(table) { // the table is not a snapshot, so it may contain a loop
		p, ok := table[pid]
		if !ok {
			return false
		}
		if p.parent == ancestor {
			return true
		}
		pid = p.parent
	}
	return false
}

// sameNamespaces reports whether the process is in the same mount, PID and network namespaces as this one. It returns true
// for a process that is gone.
func sameNamespaces(pid int) bool {
	for _, kind := range []string{"mnt", "pid", "net"} {
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
		if err != nil {
			continue
		}
		ours, err := os.Readlink("/proc/self/ns/" + kind)
		if err == nil && ours != theirs {
			return false
		}
	}
	return true
}
