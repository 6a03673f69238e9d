package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// initGroup is the group of a jail's first process, a sibling of the jobs' groups.
	initGroup = "init"
	// supervisorGroup is the child group that the supervisor's own processes are moved to when their group enables
	// controllers.
	supervisorGroup = "supervisor"
)

// A Tree describes the cgroup hierarchies of the host, and where in them this package creates its groups. It is safe
// for concurrent use.
type Tree struct {
	layout  string
	mounts  []mount           // every mounted hierarchy
	unified string            // the mount point of v2, "" on v1
	v1      map[string]string // controller → mount point
	clone   bool              // a jail's first process can fork into a job's group

	base      string // the group that contains top, on v2; "/" elsewhere
	top       string // the directory that contains all groups of this package: corral, or a test's own
	delegated bool
}

// Detect reads the host's hierarchies from /proc/self/mountinfo and /proc/self/cgroup; it changes nothing. The error
// is or wraps [ErrNoCgroups], [ErrNoMemory], [ErrNoPIDs], [ErrNoCPU] or [ErrReadOnly], with a hint.
func Detect() (*Tree, error) {
	h, err := thisHost()
	if err != nil {
		return nil, err
	}
	t, err := detect(h)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func thisHost() (host, error) {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return host{}, err
	}
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return host{}, err
	}
	return host{string(mountinfo), string(self), controllersIn, delegatedToUs}, nil
}

func controllersIn(dir string) []string {
	b, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	return strings.Fields(string(b))
}

// delegatedToUs checks for the mark that systemd puts on a delegated group, https://systemd.io/CGROUP_DELEGATION: in
// trusted.delegate, which only root can see, and from version 251 in user.delegate. The group of a user's own manager
// has the mark too, but belongs to that user.
func delegatedToUs(dir string) bool {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil || int(st.Uid) != os.Geteuid() {
		return false
	}
	mark := make([]byte, 8)
	for _, name := range []string{"trusted.delegate", "user.delegate"} {
		if n, err := unix.Getxattr(dir, name, mark); err == nil && string(mark[:n]) == "1" {
			return true
		}
	}
	return false
}

// Layout returns "v2", "hybrid" or "v1", as described in the package comment.
func (t *Tree) Layout() string { return t.layout }

// path returns the directory of a group below the base, in the hierarchy mounted at point.
func (t *Tree) path(point string, group ...string) string {
	base := "/"
	if point == t.unified {
		base = t.base
	}
	return filepath.Join(append([]string{point, base}, group...)...)
}

// point returns the mount point of a controller's hierarchy, "" if it is not mounted. The controller "cgroup", named
// for the prefix of its files, stands for the unified hierarchy.
func (t *Tree) point(controller string) string {
	if controller == "cgroup" || t.layout == "v2" {
		return t.unified
	}
	return t.v1[controller]
}

// points returns the mount points of the hierarchies that jobs use, in the order in which a process joins them. The
// one used to kill is first: once a process has joined it, its children are found there.
func (t *Tree) points() []string {
	if t.layout == "v2" {
		return []string{t.unified}
	}
	var list []string
	if t.layout == "hybrid" {
		list = append(list, t.unified)
	} else if t.v1["freezer"] != "" {
		list = append(list, t.v1["freezer"])
	}
	names := []string{"pids", "memory", "cpu"}
	if t.layout == "v1" {
		names = append(names, "cpuacct")
	}
	for _, name := range names {
		// cpu and cpuacct may be one hierarchy.
		if p := t.v1[name]; p != "" && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// homes returns the possible directories named corral of this host in every hierarchy, used by jobs or not:
// libcontainer joins them all, and an instance run by a service has another base than one started by hand.
func (t *Tree) homes() []string {
	var list []string
	for _, m := range t.mounts {
		list = append(list, filepath.Join(m.point, t.top))
		if home := t.path(m.point, t.top); !slices.Contains(list, home) {
			list = append(list, home)
		}
	}
	return list
}

// Instances returns the names of the instances that have a directory in any hierarchy, whether their supervisors
// still run or not.
func (t *Tree) Instances() ([]string, error) {
	var names []string
	for _, home := range t.homes() {
		children, err := childrenOf(home)
		if err != nil {
			return nil, err
		}
		names = append(names, children...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// checkName accepts only 1 to 64 letters, digits, "-" and "_": without a dot, a name cannot be that of a controller's
// file.
func checkName(name string) error {
	plain := func(r rune) bool {
		return r == '-' || r == '_' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z'
	}
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) {
		return fmt.Errorf("%q cannot name a cgroup: use 1 to 64 letters, digits, - and _", name)
	}
	if slices.Contains(reserved, name) {
		return fmt.Errorf("%q cannot name a cgroup: the name is reserved", name)
	}
	return nil
}

// reserved lists the groups that this package creates, and the v1 files without a dot.
var reserved = []string{initGroup, supervisorGroup, "tasks", "notify_on_release", "release_agent"}
