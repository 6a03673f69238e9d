package cgroup

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A Job holds the groups of one run, or of a slot that will have one. The caller that created it removes it. It is
// safe for concurrent use, except that no method may be called during or after [Job.Remove].
type Job struct {
	instance *Instance
	user     *User       // of the jail
	ooms     int64       // of the user when the job was created
	jailDirs *heldGroups // held while dirs may be used
	name     string
	limits   Limits  // the initial ones
	dirs     []group // in the order of Tree.points
	fd       int
	meter    meter
	self     atomic.Bool // [Job.Tasks] returned files

	end     sync.Once
	removed bool
	event   int            // the eventfd of WatchOOM, guarded by the watcher's mu; -1 without a watch
	watch   sync.WaitGroup // the running callback of WatchOOM
}

// Job creates the groups of a job and sets its limits. The error wraps [ErrUnsupported] if this host cannot enforce
// one of them, and [os.ErrExist] if the jail has a job of that name.
func (j *Jail) Job(name string, l Limits) (*Job, error) {
	g, err := j.Begin(name, l)
	if err != nil {
		return nil, err
	}
	if err := g.Complete(); err != nil {
		return nil, errors.Join(err, g.Remove())
	}
	return g, nil
}

// Begin is the first half of [Jail.Job], for callers that start a process at the same time: it checks the limits and
// creates the group of [Job.Dir]. [Job.Complete] does the rest, and the process must not get any work before that.
// Until then only Dir and [Job.Remove] may be called.
func (j *Jail) Begin(name string, l Limits) (*Job, error) {
	if err := errors.Join(checkName(name), l.check(j.instance)); err != nil {
		return nil, err
	}
	if !j.jailDirs.Hold() {
		return nil, makeError(fmt.Errorf("the jail was removed: %w", os.ErrNotExist))
	}
	g := &Job{
		instance: j.instance, user: j.user, jailDirs: j.jailDirs, name: name, limits: l,
		fd: -1, event: -1, meter: newMeter(),
	}
	if err := g.begin(j); err != nil {
		return nil, errors.Join(makeError(err), g.Remove())
	}
	return g, nil
}

func (g *Job) begin(j *Jail) error {
	if err := g.makeDir(0); err != nil || !g.instance.tree.clone {
		return err
	}
	if err := j.chown(g.dirs[0]); err != nil {
		return err
	}
	var err error
	g.fd, err = g.dirs[0].OpenDir()
	return err
}

// Complete creates the job's other groups and sets its limits. The caller removes the job after an error.
func (g *Job) Complete() error {
	for n := 1; n < g.jailDirs.Len(); n++ {
		if err := g.makeDir(n); err != nil {
			return makeError(err)
		}
	}
	if err := g.set(g.limits, false); err != nil {
		return makeError(err)
	}
	if err := g.openMeter(); err != nil {
		return makeError(err)
	}
	if g.user != nil {
		g.ooms = g.user.ooms()
	}
	return nil
}

func makeError(err error) error { return fmt.Errorf("create cgroup of job: %w", err) }

// makeDir creates the n-th directory. It fails if the name exists, so groups of another job are never used or removed.
func (g *Job) makeDir(n int) error {
	d := g.jailDirs.Child(n, g.name)
	if err := d.Make(); err != nil {
		return err
	}
	g.dirs = append(g.dirs, d)
	return nil
}

// Dir returns a descriptor of the job's directory in the unified hierarchy, for CLONE_INTO_CGROUP of clone3(2) or
// CgroupFD of [syscall.SysProcAttr]. The Job owns it and closes it in [Job.Remove]. It is -1 where a process cannot
// be started in a job's group: on v1, and on a hybrid host whose unified hierarchy is mounted with nsdelegate. There
// [Job.Attach] moves the process into all groups.
func (g *Job) Dir() int { return g.fd }

// Remove removes the job's groups and closes the descriptor of [Job.Dir]. It waits up to two seconds for killed
// processes to exit; the error wraps [ErrUnkillable] if some do not, and then Remove may be called again. It also
// waits until the callback of [Job.WatchOOM] has returned.
func (g *Job) Remove() error {
	g.end.Do(func() {
		g.instance.watcher.remove(g)
		g.meter.close()
		if g.fd >= 0 {
			_ = unix.Close(g.fd)
			g.fd = -1
		}
	})
	if g.removed {
		return nil
	}
	if err := removeGroups(g.dirs); err != nil {
		return err
	}
	g.removed = true
	for n := range g.dirs {
		g.dirs[n] = g.dirs[n].Detached() // the descriptor number may soon be reused for another file
	}
	g.jailDirs.Release()
	return nil
}
