package cgroup

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// heldGroups holds groups open while they or their children are used: one descriptor per group, whatever the number of
// children. It is safe for concurrent use.
type heldGroups struct {
	groups []group // by path
	fds    []int   // in the order of groups
	users  atomic.Int64
}

// holdGroups opens groups, with a reference count of one.
func holdGroups(groups []group) (*heldGroups, error) {
	s := &heldGroups{groups: groups}
	s.users.Store(1)
	for _, d := range groups {
		fd, err := d.OpenDir()
		if err != nil {
			s.Release()
			return nil, err
		}
		s.fds = append(s.fds, fd)
	}
	return s, nil
}

// Hold adds a reference, unless the directories are closed already, which it reports.
func (s *heldGroups) Hold() bool {
	for {
		n := s.users.Load()
		if n == 0 {
			return false
		}
		if s.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release drops a reference and closes the directories with the last one.
func (s *heldGroups) Release() {
	if s.users.Add(-1) > 0 {
		return
	}
	for _, fd := range s.fds {
		_ = unix.Close(fd)
	}
}

// Child returns the child called name of the n-th group.
func (s *heldGroups) Child(n int, name string) group {
	d := s.groups[n]
	return group{at: s.fds[n], name: name, Path: d.Path + "/" + name, Point: d.Point}
}

// Len returns the number of groups.
func (s *heldGroups) Len() int { return len(s.groups) }
