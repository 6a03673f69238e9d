package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A Job is the groups of one run, or of the place where one will run. The one who made it removes it. It is safe for
// concurrent use, except that nothing may be called during or after [Job.Remove].
type Job struct {
	instance *Instance
	stand    *stand // held while dirs may be used
	jail     string // its name
	name     string
	limits   Limits  // that it was made with
	dirs     []group // in the order of Tree.points
	fd       int
	io       bool // blkio is joined, on v1
	meter    meter
	self     atomic.Bool // Tasks were given out

	end     sync.Once
	removed bool
	event   int            // WatchOOM's, guarded by the watcher's mu; -1 if there is none
	watch   sync.WaitGroup // WatchOOM's function
	oom     atomic.Bool    // WatchOOM was told
}

// Job makes the groups of a job with its limits. The error wraps [ErrUnsupported] if this host cannot enforce one of
// them, and [os.ErrExist] if the jail has a job of that name.
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

// Begin is [Jail.Job] for who starts a process at the same time. It checks the limits and makes the group that
// [Job.Dir] is of. [Job.Complete] does the rest, before which the process is given nothing to do; but for Dir and
// [Job.Remove] nothing else may be called until then.
func (j *Jail) Begin(name string, l Limits) (*Job, error) {
	if err := errors.Join(checkName(name), l.check(j.instance)); err != nil {
		return nil, err
	}
	if !j.stand.hold() {
		return nil, makeError(fmt.Errorf("the jail was removed: %w", os.ErrNotExist))
	}
	g := &Job{
		instance: j.instance, stand: j.stand, jail: j.name, name: name, limits: l,
		fd: -1, event: -1, meter: newMeter(), io: l.IOWeight != 0,
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
	g.fd, err = g.dirs[0].openDir()
	return err
}

// Complete makes the job's other groups, and sets its limits. After an error it is removed.
func (g *Job) Complete() error {
	for n := 1; n < len(g.stand.groups); n++ {
		if err := g.makeDir(n); err != nil {
			return makeError(err)
		}
	}
	t := g.instance.tree
	if point := t.v1["blkio"]; g.io && t.layout != "v2" && !slices.Contains(t.points(), point) {
		if err := g.makeIO(point); err != nil {
			return makeError(err)
		}
	}
	if err := g.set(g.limits, false); err != nil {
		return makeError(err)
	}
	if err := g.openMeter(); err != nil {
		return makeError(err)
	}
	return nil
}

func makeError(err error) error { return fmt.Errorf("make cgroup of job: %w", err) }

// makeDir makes the n-th directory. A name is taken once in each hierarchy: nothing of another job's is used or removed.
func (g *Job) makeDir(n int) error {
	d := g.stand.group(n, g.name)
	if err := d.make(); err != nil {
		return err
	}
	g.dirs = append(g.dirs, d)
	return nil
}

// makeIO makes the directory in the hierarchy of blkio, which is joined only by those who have a use for it: each
// costs its directory, its attach and its removal. The jail's own may not be there.
func (g *Job) makeIO(point string) error {
	jail := g.instance.tree.path(point, g.instance.tree.top, g.instance.name, g.jail)
	if err := os.MkdirAll(jail, 0o755); err != nil {
		return err
	}
	d := groupAt(filepath.Join(jail, g.name))
	d.point = point
	if err := d.make(); err != nil {
		return err
	}
	g.dirs = append(g.dirs, d)
	return nil
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
	if g.removed {
		return nil
	}
	if err := removeGroups(g.dirs); err != nil {
		return err
	}
	g.removed = true
	for n := range g.dirs {
		g.dirs[n].at = -1 // the number may soon be another file's
	}
	g.stand.release()
	return nil
}
