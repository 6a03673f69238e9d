package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"golang.org/x/sys/unix"
)

// A Job is the groups of one run, or of the place where one will run. The one who made it removes it. It is safe for
// concurrent use, except that nothing may be called during or after [Job.Remove].
type Job struct {
	instance *Instance
	dirs     []string // in the order of Tree.points
	group    string   // from the mount points on
	v1       cgroup1.Cgroup
	v2       *cgroup2.Manager
	fd       int
	io       bool // blkio is joined, on v1
	meter    meter
	self     atomic.Bool // Tasks were given out

	end   sync.Once
	event int            // WatchOOM's, guarded by the watcher's mu; -1 if there is none
	watch sync.WaitGroup // WatchOOM's function
	oom   atomic.Bool    // WatchOOM was told
}

// Job makes the groups of a job with its limits. The error wraps [ErrUnsupported] if this host cannot enforce one of
// them, and [os.ErrExist] if the jail has a job of that name.
func (j *Jail) Job(name string, l Limits) (*Job, error) {
	if err := errors.Join(checkName(name), l.check(j.instance)); err != nil {
		return nil, err
	}
	g := &Job{
		instance: j.instance, fd: -1, event: -1, meter: newMeter(), io: l.IOWeight != 0,
		group: filepath.Join("/", j.instance.tree.top, j.instance.name, j.name, name),
	}
	for _, dir := range j.dirs() {
		g.dirs = append(g.dirs, filepath.Join(dir, name))
	}
	if g.io && j.instance.tree.layout != "v2" {
		g.dirs = append(g.dirs, j.instance.tree.path(j.instance.tree.v1["blkio"], g.group))
	}
	// This one is made by mkdir(2), so that a name is taken once; of the others containerd makes what is not there.
	if err := os.Mkdir(g.dirs[0], 0o755); err != nil {
		return nil, fmt.Errorf("make cgroup of job: %w", err)
	}
	if err := g.make(j, l); err != nil {
		return nil, errors.Join(fmt.Errorf("make cgroup of job: %w", err), g.Remove())
	}
	return g, nil
}

// make does all but the first directory.
func (g *Job) make(j *Jail, l Limits) error {
	set := g.makeV1
	if g.instance.tree.layout == "v2" {
		set = g.loadV2
	}
	if err := set(l); err != nil {
		return err
	}
	if err := g.openMeter(); err != nil {
		return err
	}
	if !g.instance.tree.clone {
		return nil
	}
	if err := j.chown(g.dirs[0]); err != nil {
		return err
	}
	var err error
	g.fd, err = openFile(g.dirs[0], unix.O_PATH|unix.O_DIRECTORY)
	return err
}

// Dir returns a descriptor of the job's directory in the unified hierarchy: for clone3(2)'s CLONE_INTO_CGROUP, or
// CgroupFD of [syscall.SysProcAttr]. It is the Job's own and is closed by [Job.Remove]. It is -1 where a process cannot
// be born in a job's group: on v1, and on a hybrid host whose unified hierarchy is mounted with nsdelegate. There
// [Job.Attach] does all of it.
func (g *Job) Dir() int { return g.fd }

// Remove removes the job's groups and closes the descriptor of [Job.Dir]. It waits up to two seconds for processes
// that were killed to leave; the error wraps [ErrUnkillable] if some do not, and then it may be called again. It
// returns when the function of [Job.WatchOOM] has returned, if it was called.
func (g *Job) Remove() error {
	g.end.Do(func() {
		g.instance.watcher.remove(g)
		g.meter.close()
		if g.fd >= 0 {
			_ = unix.Close(g.fd)
			g.fd = -1
		}
	})
	return removeDirs(g.dirs)
}
