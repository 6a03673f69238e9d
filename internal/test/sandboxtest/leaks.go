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

// Leaks fails the test if, two seconds after its end, something is left that was not there at the call: a goroutine, a
// descriptor, a mount, a cgroup named corral*, a process. A namespace lives as long as a process, a descriptor or a mount
// holds it, so these three find it.
//
// What is left is looked for after the clean-ups that the test registers after the call, hence call it first. Goroutines
// and descriptors are those of the whole process: a test with Leaks is not a parallel one. While it runs, no other process
// runs a test that needs root.
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

// warm makes the runtime open what it keeps: the poller's descriptors.
func warm(t testing.TB) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	_ = w.Close()
}

// leftovers returns what is there and was not before, once it has been seen at each look for the time given. At once,
// if there is nothing.
func leftovers(before map[string]string, patience time.Duration) []string {
	end := time.Now().Add(patience)
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
		if len(left) == 0 || time.Now().After(end) {
			break
		}
		time.Sleep(10 * time.Millisecond) // the kernel tells no one when the last mount or cgroup has gone
	}
	found := make([]string, 0, len(left))
	for _, what := range left {
		found = append(found, what)
	}
	slices.Sort(found)
	return found
}

// census returns all that may leak: what identifies it, and a description.
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
		// Started by the first signal.Notify, and kept.
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

// machineGroup begins the names of the cgroups of other test processes: those that scripts/test runs have them as the root
// of their namespaces.
const machineGroup = "sandboxtest-"

func cgroups(all map[string]string) {
	for _, m := range cgroupMounts() {
		_ = filepath.WalkDir(m.point, func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // it went away
			}
			if d.IsDir() && strings.HasPrefix(d.Name(), machineGroup) {
				return fs.SkipDir
			}
			if d.IsDir() && strings.HasPrefix(d.Name(), "corral") {
				all["cgroup "+name] = "cgroup " + name
				return fs.SkipDir // those below are gone when it is
			}
			return nil
		})
	}
}

// A process is what /proc says of one.
type process struct {
	pid, parent int
	name, state string
	start       string // with pid its identity: clock ticks since the boot
}

// processes counts those that descend from this one, and those that may have and lost their parents: children of an
// ancestor of ours, in other namespaces than ours. The shells of someone else, who works here too, are none of these.
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
	// The name is in parentheses and may hold some itself.
	stat := string(b)
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return p, false
	}
	f := strings.Fields(stat[end+1:]) // from the third field on
	if len(f) < 20 {
		return p, false
	}
	parent, err := strconv.Atoi(f[1])
	return process{pid: pid, parent: parent, name: stat[open+1 : end], state: f[0], start: f[19]}, err == nil
}

// descends reports whether pid is a child, or a child's child, of ancestor.
func descends(table map[int]process, pid, ancestor int) bool {
	for range len(table) { // the table was read one by one, so a loop is possible
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

// sameNamespaces reports whether the process is in the mount, PID and network namespaces that this one is in. One that is
// gone is.
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
