package isolate

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"corral/cgroup"
	"corral/isolate/wire"
	"corral/job"
)

// slotPatience bounds each wait for an answer from inside a jail, which does nothing but system calls: far above what
// a loaded machine needs, so that only a broken one meets it.
const slotPatience = 20 * time.Second

// A slot is a place for one job: a stub in fresh namespaces and in a cgroup of its own, confined as far as is possible
// before the job is known, waiting. It is used once.
type slot struct {
	jail   *jail
	plain  bool   // in the jail's own root
	user   uint32 // number of the job's user in the jail
	limits cgroup.Limits
	tmp    [2]int64 // bytes and inodes of each private directory
	idmap  *os.File // user namespace that maps the repository's owner to the user; the jail's
	group  *cgroup.Job
	stub   *wire.Conn
	pidfd  *os.File // ready when every process of the job is gone
	job    atomic.Pointer[run]
	spoilt atomic.Bool // memory ran out before there was a job, which would be told of it
}

// hostUID is the job's user on the host.
func (sl *slot) hostUID() uint32 { return sl.jail.base + 1 + sl.user }

// others is how many processes of the slot's user there may be that are no job's.
func (sl *slot) others() int {
	if sl.jail.session == nil {
		return 0
	}
	return max(0, sl.jail.s.config.Slots)
}

// newSlot makes a slot with limits and prepares it; plain is for programs of ours, which are in the jail's own root
// whatever the session has. The caller must destroy it.
func (j *jail) newSlot(limits cgroup.Limits, profile string, plain bool) (*slot, error) {
	d := j.s.config.Defaults
	sl := &slot{jail: j, limits: limits, tmp: [2]int64{d.Tmp, d.TmpInodes}, plain: plain}
	if !j.hold() {
		return nil, errJailEnded
	}
	var u undo
	defer u.run()
	u.push(j.work.Done)
	var err error
	left := false // a process of it, maybe: then its user id is not used again
	if sl.user, err = j.takeUser(profile); err != nil {
		return nil, err
	}
	u.push(func() {
		if !left {
			j.returnUser(sl.user)
		}
	})
	if sl.idmap, err = j.idmap(sl.user); err != nil {
		return nil, err
	}
	if sl.group, err = j.groups.Begin(j.s.name("job-"), limits); err != nil {
		return nil, err
	}
	u.push(func() {
		err := sl.group.Remove()
		left = err != nil
		j.report("cgroup", err)
	})
	p := j.preparation(sl)
	err = j.startStub(sl, &p, profile)
	if sl.pidfd == nil {
		return nil, err
	}
	u.keep() // from here on there is a process, and all goes with it
	if err == nil {
		err = j.confine(sl, &p, profile)
	}
	if err != nil {
		sl.destroy()
		return nil, err
	}
	return sl, nil
}

// outOfMemory ends the job as a whole, where the kernel ends one process of it.
func (sl *slot) outOfMemory() {
	if r := sl.job.Load(); r != nil {
		r.ask(wire.Vanished)
		return
	}
	sl.spoilt.Store(true)
}

// stubPatience is how long a stub may take to see the end of its socket, and the kernel to take it down.
const stubPatience = 200 * time.Millisecond

// destroy ends what is left of the slot and gives back what it had. When that takes its time, it goes on by itself: others
// are not to wait for it. The jail does.
func (sl *slot) destroy() {
	sl.stub.Close()
	if err := sl.wait(stubPatience); err == nil {
		sl.giveBack()
		return
	}
	go func() {
		if err := sl.group.Kill(); err != nil {
			sl.jail.report("processes", err)
		}
		sl.awaitEnd()
	}()
}

// awaitEnd gives back what the slot had when its processes have ended. One may take long: the kernel ends a million epoll
// watches in a second, and a file system that does not answer keeps who waits for it. As long as the jail stands that is waited
// for. A process that has not ended then keeps its cgroup and its user id: neither is used again.
func (sl *slot) awaitEnd() {
	for told := false; ; told = true {
		err := sl.wait(sl.jail.s.config.ending)
		if err == nil {
			sl.giveBack()
			return
		}
		if !told {
			sl.jail.report("processes that have not ended yet", err)
		}
		if !sl.jail.alive() || !errors.Is(err, os.ErrDeadlineExceeded) {
			sl.jail.work.Done()
			return
		}
	}
}

// giveBack gives back what the slot had, of which no process is left.
func (sl *slot) giveBack() {
	defer sl.jail.work.Done()
	sl.pidfd.Close()
	if err := sl.group.Remove(); err != nil {
		sl.jail.report("cgroup", err)
		return
	}
	sl.jail.removedGroup()
	sl.jail.returnUser(sl.user)
}

// takeSlot returns a prepared slot: one that waits, or a new one.
func (j *jail) takeSlot(plain bool) (*slot, error) {
	if plain && len(j.roots) > 0 {
		return j.newSlot(groupLimits(j.s.config.Defaults), j.key.profile, true)
	}
	if sl := j.pool.take(); sl != nil {
		return sl, nil
	}
	return j.plainSlot()
}

// plainSlot makes a slot as most jobs need one.
func (j *jail) plainSlot() (*slot, error) {
	return j.newSlot(groupLimits(j.s.config.Defaults), j.key.profile, false)
}

// alive says whether the jail is not being dropped.
func (j *jail) alive() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.dropped
}

func groupLimits(l job.Limits) cgroup.Limits {
	g := cgroup.Limits{MemoryBytes: l.Memory, PIDs: l.PIDs}
	if l.MilliCPUs != job.Unlimited {
		g.MilliCPUs = l.MilliCPUs
	}
	return g
}
