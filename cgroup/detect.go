package cgroup

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Errors of [Detect]. If several controllers are missing, their errors are joined.
var (
	ErrNoCgroups = errors.New("no cgroup file system is mounted")
	ErrNoMemory  = errors.New("the memory controller is missing")
	ErrNoPIDs    = errors.New("the pids controller is missing")
	ErrNoCPU     = errors.New("the cpu controller is missing")
	ErrReadOnly  = errors.New("the cgroup file system is mounted read-only")
)

type controller struct {
	name string
	err  error
	hint string
}

// needed lists the controllers without which no job runs.
var needed = []controller{
	{"memory", ErrNoMemory, "boot with cgroup_enable=memory, or without cgroup_disable=memory"},
	{"pids", ErrNoPIDs, "boot without cgroup_disable=pids; the kernel needs CONFIG_CGROUP_PIDS"},
	{"cpu", ErrNoCPU, "boot without cgroup_disable=cpu; the kernel needs CONFIG_CFS_BANDWIDTH"},
}

// A mount is where one hierarchy is mounted.
type mount struct {
	point string
	root  string // the group mounted at point: "/", except in a container that sees only a part
	// controllers are those of a v1 hierarchy, and its name (name=systemd) if it has one. Empty for v2.
	controllers []string
	v2          bool
	readOnly    bool
	nsdelegate  bool
}

// A host is the input of detect; tests replace it.
type host struct {
	mountinfo string // /proc/self/mountinfo
	self      string // /proc/self/cgroup
	// controllers returns cgroup.controllers of a v2 directory.
	controllers func(dir string) []string
	// delegated reports whether systemd gave a v2 directory to this process's user.
	delegated func(dir string) bool
}

// detect chooses the layout from h alone.
func detect(h host) (*Tree, error) {
	t := &Tree{base: "/", top: "corral", v1: map[string]string{}}
	var unified *mount
	t.mounts = parseMountinfo(h.mountinfo)
	for n, m := range t.mounts {
		if m.v2 {
			unified = &t.mounts[n]
		}
		for _, c := range m.controllers {
			t.v1[c] = m.point
		}
	}
	if len(t.mounts) == 0 {
		return nil, fmt.Errorf("%w (hint: mount -t cgroup2 cgroup2 /sys/fs/cgroup)", ErrNoCgroups)
	}
	v1 := slices.ContainsFunc(needed, func(c controller) bool { return t.v1[c.name] != "" })
	switch {
	case unified != nil && !v1:
		t.layout, t.unified, t.clone = "v2", unified.point, true
		t.findBase(h, *unified)
	case unified != nil:
		// The cgroup namespace of a jail's first process has as its unified root the group of the supervisor. Under
		// nsdelegate that process cannot put a child into any group outside (cgroups(7)), so the supervisor does it.
		t.layout, t.unified, t.clone = "hybrid", unified.point, !unified.nsdelegate
	default:
		t.layout = "v1"
	}
	return t, errors.Join(t.missing(h), t.readOnly())
}

// missing returns an error for each needed controller that the host lacks.
func (t *Tree) missing(h host) error {
	var errs []error
	there := func(name string) bool { return t.v1[name] != "" }
	if t.layout == "v2" {
		list := h.controllers(t.path(t.unified))
		there = func(name string) bool { return slices.Contains(list, name) }
	}
	for _, c := range needed {
		if !there(c.name) {
			errs = append(errs, fmt.Errorf("%w in this %s layout (hint: %s; in a container, a controller must be given to it; "+
				"for a systemd unit, Delegate=yes)", c.err, t.layout, c.hint))
		}
	}
	return errors.Join(errs...)
}

// readOnly returns an error if a hierarchy that jobs use is mounted read-only.
func (t *Tree) readOnly() error {
	for _, m := range t.mounts {
		if m.readOnly && slices.Contains(t.points(), m.point) {
			return fmt.Errorf("%w: %s (hint: in a container, mount it read-write and give it a cgroup namespace of its own)",
				ErrReadOnly, m.point)
		}
	}
	return nil
}

// findBase sets the base on a v2 host: the group that systemd delegated. That is this process's own group, or its
// parent if the unit has a DelegateSubgroup= or the supervisor moved itself. Groups further up belong to another
// manager, such as user@0.service.
func (t *Tree) findBase(h host, m mount) {
	own := ownGroup(h.self)
	if m.root != "/" {
		below, ok := strings.CutPrefix(own, m.root)
		if !ok {
			return
		}
		own = path.Clean("/" + below)
	}
	for _, group := range []string{own, path.Dir(own)} {
		if group != "/" && h.delegated(path.Join(m.point, group)) {
			t.base, t.delegated = group, true
			return
		}
	}
}

// ownGroup returns the path of the v2 line in /proc/self/cgroup: "0::/a/b", see cgroups(7).
func ownGroup(self string) string {
	for line := range strings.Lines(self) {
		if group, ok := strings.CutPrefix(line, "0::"); ok {
			return path.Clean("/" + strings.TrimSpace(group))
		}
	}
	return "/"
}

// parseMountinfo returns one mount for each hierarchy: the first, or a later writable one if the first is read-only.
// The format is that of proc_pid_mountinfo(5).
func parseMountinfo(text string) []mount {
	var list []mount
	seen := map[string]int{}
	for line := range strings.Lines(text) {
		m, hierarchy, ok := parseMount(line)
		if !ok {
			continue
		}
		if n, again := seen[hierarchy]; !again {
			seen[hierarchy] = len(list)
			list = append(list, m)
		} else if list[n].readOnly && !m.readOnly {
			list[n] = m
		}
	}
	return list
}

// parseMount parses one line of mountinfo. hierarchy identifies the cgroup hierarchy that it mounts; ok is false if
// it mounts none.
func parseMount(line string) (m mount, hierarchy string, ok bool) {
	before, after, _ := strings.Cut(line, " - ")
	f, g := strings.Fields(before), strings.Fields(after)
	if len(f) < 6 || len(g) < 3 {
		return m, "", false
	}
	options := strings.Split(g[2], ",")
	m = mount{
		root: unescape(f[3]), point: unescape(f[4]),
		readOnly: slices.Contains(strings.Split(f[5], ","), "ro") || slices.Contains(options, "ro"),
	}
	switch g[0] {
	case "cgroup2":
		m.v2, m.nsdelegate = true, slices.Contains(options, "nsdelegate")
	case "cgroup":
		for _, o := range options {
			if slices.Contains(v1Controllers, o) || strings.HasPrefix(o, "name=") {
				m.controllers = append(m.controllers, o)
			}
		}
	default:
		return m, "", false
	}
	return m, strings.Join(m.controllers, ","), m.v2 || len(m.controllers) > 0
}

// v1Controllers is the list in cgroups(7). Any other mount option is not a controller.
var v1Controllers = []string{
	"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "net_cls", "blkio", "perf_event", "net_prio", "hugetlb",
	"pids", "rdma", "misc",
}

// unescape decodes the kernel's octal escapes of space, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for n := 0; n < len(s); n++ {
		if s[n] == '\\' && n+3 < len(s) {
			if c, err := strconv.ParseUint(s[n+1:n+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				n += 3
				continue
			}
		}
		b.WriteByte(s[n])
	}
	return b.String()
}
