package cgroup

import (
	"errors"
	"slices"
	"testing"
)

const (
	systemdV2 = `24 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 24 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
`
	containerV2 = `612 500 0:26 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate
`
	// A container without a cgroup namespace of its own sees its part of the host's tree.
	containerV2Part = `612 500 0:26 /docker/4f2e /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw
`
	systemdHybrid = `30 24 0:26 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid,nodev,noexec,relatime shared:10 - cgroup2 cgroup2 rw,nsdelegate
32 30 0:28 / /sys/fs/cgroup/systemd rw,nosuid,nodev,noexec,relatime shared:11 - cgroup cgroup rw,xattr,name=systemd
35 30 0:31 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid,nodev,noexec,relatime shared:15 - cgroup cgroup rw,cpu,cpuacct
36 30 0:32 / /sys/fs/cgroup/memory rw,nosuid,nodev,noexec,relatime shared:16 - cgroup cgroup rw,memory
37 30 0:33 / /sys/fs/cgroup/pids rw,nosuid,nodev,noexec,relatime shared:17 - cgroup cgroup rw,pids
38 30 0:34 / /sys/fs/cgroup/freezer rw,nosuid,nodev,noexec,relatime shared:18 - cgroup cgroup rw,freezer
`
	separate = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
`
	unified = `41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	noMemory = `32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
`
	escaped = `30 24 0:26 / /mnt/with\040space rw,relatime - cgroup2 cgroup2 rw
`
	twice = `30 24 0:26 / /first ro,relatime - cgroup2 cgroup2 rw
31 24 0:26 / /second rw,relatime - cgroup2 cgroup2 rw
`
)

func TestDetect(t *testing.T) {
	service := "0::/system.slice/corrald.service\n"
	for _, c := range []struct {
		name        string
		mountinfo   string
		self        string
		controllers []string // of a v2 host; nil for the default list
		delegated   string
		layout      string
		base        string
		clone       bool
		points      []string
		errs        []error
	}{
		{
			name: "systemd, v2, by hand", mountinfo: systemdV2, self: "0::/user.slice/user-0.slice/session-1.scope\n",
			layout: "v2", base: "/", clone: true, points: []string{"/sys/fs/cgroup"},
		},
		{
			name: "systemd, v2, delegated", mountinfo: systemdV2, self: service,
			delegated: "/sys/fs/cgroup/system.slice/corrald.service",
			layout:    "v2", base: "/system.slice/corrald.service", clone: true, points: []string{"/sys/fs/cgroup"},
		},
		{
			name: "systemd, v2, delegated, in a subgroup", mountinfo: systemdV2,
			self:      "0::/system.slice/corrald.service/supervisor\n",
			delegated: "/sys/fs/cgroup/system.slice/corrald.service",
			layout:    "v2", base: "/system.slice/corrald.service", clone: true, points: []string{"/sys/fs/cgroup"},
		},
		{
			name: "systemd, v2, someone else's delegation", mountinfo: systemdV2,
			self:      "0::/user.slice/user-0.slice/user@0.service/app.slice/term.scope\n",
			delegated: "/sys/fs/cgroup/user.slice/user-0.slice/user@0.service",
			layout:    "v2", base: "/", clone: true, points: []string{"/sys/fs/cgroup"},
		},
		{
			name: "v2 in a container, read-only", mountinfo: containerV2, self: "0::/\n",
			layout: "v2", base: "/", clone: true, points: []string{"/sys/fs/cgroup"}, errs: []error{ErrReadOnly},
		},
		{
			name: "v2 in a container, a part of the tree", mountinfo: containerV2Part, self: "0::/docker/4f2e/a\n",
			delegated: "/sys/fs/cgroup/a",
			layout:    "v2", base: "/a", clone: true, points: []string{"/sys/fs/cgroup"},
		},
		{
			name: "v2 without needed controllers", mountinfo: systemdV2, self: service, controllers: []string{"cpuset", "pids"},
			layout: "v2", base: "/", clone: true, points: []string{"/sys/fs/cgroup"}, errs: []error{ErrNoMemory, ErrNoCPU},
		},
		{
			name: "systemd, hybrid, cpu with cpuacct", mountinfo: systemdHybrid, self: "4:cpu,cpuacct:/\n" + service,
			layout: "hybrid", base: "/",
			points: []string{
				"/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu,cpuacct",
			},
		},
		{
			name: "hybrid, cpu without cpuacct", mountinfo: separate + unified, self: "0::/\n",
			layout: "hybrid", base: "/", clone: true,
			points: []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu"},
		},
		{
			name: "v1", mountinfo: separate, self: "1:cpu:/\n",
			layout: "v1", base: "/",
			points: []string{
				"/sys/fs/cgroup/freezer", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu",
				"/sys/fs/cgroup/cpuacct",
			},
		},
		{
			name: "v1 without memory", mountinfo: noMemory, layout: "v1", base: "/",
			points: []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup/cpu"}, errs: []error{ErrNoMemory},
		},
		{
			name: "a name with a space", mountinfo: escaped, self: "0::/\n",
			layout: "v2", base: "/", clone: true, points: []string{"/mnt/with space"},
		},
		{
			name: "mounted twice", mountinfo: twice, self: "0::/\n",
			layout: "v2", base: "/", clone: true, points: []string{"/second"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.controllers == nil {
				c.controllers = []string{"cpuset", "cpu", "io", "memory", "pids"}
			}
			tree, err := detect(host{
				c.mountinfo, c.self,
				func(string) []string { return c.controllers },
				func(dir string) bool { return dir == c.delegated },
			})
			for _, e := range []error{ErrNoMemory, ErrNoPIDs, ErrNoCPU, ErrReadOnly} {
				if want := slices.Contains(c.errs, e); errors.Is(err, e) != want {
					t.Errorf("error %v wraps %q: %v, want %v", err, e, !want, want)
				}
			}
			if tree.layout != c.layout || tree.base != c.base || tree.clone != c.clone {
				t.Errorf("layout %s, base %s, clone %v; want %s, %s, %v",
					tree.layout, tree.base, tree.clone, c.layout, c.base, c.clone)
			}
			if got := tree.points(); !slices.Equal(got, c.points) {
				t.Errorf("points %q, want %q", got, c.points)
			}
		})
	}
}

func TestDetectWithoutCgroups(t *testing.T) {
	_, err := detect(host{mountinfo: "24 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\nrubbish\n"})
	if !errors.Is(err, ErrNoCgroups) {
		t.Errorf("got %v, want %v", err, ErrNoCgroups)
	}
}

func TestCheckName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "job-1_B": true, "": false, ".": false, "..": false, "a/b": false, "a.b": false, "init": false,
		"supervisor": false, "tasks": false, "memory.max": false, "a\n": false, "é": false,
		string(make([]byte, 65)): false,
	} {
		if err := checkName(name); (err == nil) != want {
			t.Errorf("checkName(%q) = %v, want allowed: %v", name, err, want)
		}
	}
}

func TestQuota(t *testing.T) {
	for _, c := range []struct {
		milli, quota int64
		period       uint64
	}{
		{1, 1000, 1_000_000},
		{9, 9000, 1_000_000},
		{10, 1000, 100_000},
		{1500, 150_000, 100_000},
		{64_000, 6_400_000, 100_000},
	} {
		if quota, period := (Limits{MilliCPUs: c.milli}).quota(); quota != c.quota || period != c.period {
			t.Errorf("%d milli-CPUs: quota %d of %d, want %d of %d", c.milli, quota, period, c.quota, c.period)
		}
	}
}

func TestLimitsRefused(t *testing.T) {
	v1 := &Instance{tree: &Tree{layout: "v1"}, has: kernel{swap: true}}
	for _, l := range []Limits{{MemoryBytes: -1}, {MilliCPUs: -1}, {PIDs: -1}} {
		if l.check(v1) == nil {
			t.Errorf("%+v was accepted", l)
		}
	}
}
