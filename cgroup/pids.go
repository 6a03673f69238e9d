package cgroup

import (
	"sync"

	"corral/cgroup/group"
)

// PIDs returns the current processes of the job, by their IDs in the caller's PID namespace.
func (g *Job) PIDs() ([]int, error) { return group.At(g.dirs[0].Path).Processes() }

// A freezer counts those who keep a job frozen: the one who is done first must not thaw it for the others.
type freezer struct {
	mu    sync.Mutex
	users int // guarded by mu
}

// Freeze freezes every process of the job until all who called it have called thaw, once each, and reports whether all are frozen: a
// process in an uninterruptible system call is not. Kill works on a frozen job, and thaws it.
func (g *Job) Freeze() (thaw func(), frozen bool) {
	f := &g.freezer
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.users--; f.users == 0 {
			group.Thaw(g.dirs[0].Path)
		}
	}, group.Freeze(g.dirs[0].Path)
}
