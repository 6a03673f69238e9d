package host

import (
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
)

// Mounts is the mount table of this process. The zero value is ready to use.
type Mounts struct {
	mu fault.Mutex
	// table is /proc/self/mountinfo; the kernel reports each change to one poll(2). An os.File would be polled by Go's runtime.
	table  int      // guarded by mu: a descriptor; 0: not opened yet
	points []string // guarded by mu: the mount points when it was read last
	moves  bool     // guarded by mu: Below has found a mount, so somebody who works below dir can move directories above it
}

// Below returns up to most mount points below a directory, relative to it, without those in another mount: their place is not the
// directory's, and who owns it decides where its path leads. It reads the table only after a change, see
// proc_pid_mountinfo(5). The kernel does not report that a directory above a mount point was renamed: once a mount point was found
// below any directory, the table is read each time.
func (m *Mounts) Below(dir string, most int) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.refresh(); err != nil {
		return nil, err
	}
	var below []string
	for _, p := range m.points {
		rel, ok := strings.CutPrefix(p, dir+"/")
		in := func(other string) bool { return strings.HasPrefix(rel+"/", other+"/") }
		if ok && len(below) < most && !slices.ContainsFunc(below, in) {
			below = append(below, rel)
		}
	}
	m.moves = m.moves || len(below) > 0
	return below, nil
}

// Close closes what Below has opened.
func (m *Mounts) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.table != 0 {
		unix.Close(m.table)
		m.table = 0
	}
}

func (m *Mounts) refresh() error {
	if m.table == 0 {
		fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: "/proc/self/mountinfo", Err: err}
		}
		m.table = fd
	} else if !m.moves {
		changed := []unix.PollFd{{Fd: int32(m.table), Events: unix.POLLPRI}}
		if n, err := unix.Poll(changed, 0); err == nil && n == 0 {
			return nil
		}
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	m.points = mountPoints(string(text))
	return nil
}

// mountPoints returns the mount points of a table, in its order: what is mounted on another one comes later.
func mountPoints(table string) []string {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var points []string
	for line := range strings.Lines(table) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points = append(points, unescape.Replace(fields[4]))
		}
	}
	return points
}
