package group

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Dirs holds groups open while they or their children are used: one descriptor per group, whatever the number of
// children. It is safe for concurrent use.
type Dirs struct {
	groups []Group // by path
	fds    []int   // in the order of groups
	users  atomic.Int64
}

// OpenDirs opens groups, with a reference count of one.
func OpenDirs(groups []Group) (*Dirs, error) {
	s := &Dirs{groups: groups}
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
func (s *Dirs) Hold() bool {
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
func (s *Dirs) Release() {
	if s.users.Add(-1) > 0 {
		return
	}
	for _, fd := range s.fds {
		_ = unix.Close(fd)
	}
}

// Child returns the child called name of the n-th group.
func (s *Dirs) Child(n int, name string) Group {
	d := s.groups[n]
	return Group{at: s.fds[n], name: name, Path: d.Path + "/" + name, Point: d.Point}
}

// Len returns the number of groups.
func (s *Dirs) Len() int { return len(s.groups) }
