package cell

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"corral/cgroup"
	"corral/internal/fault"
	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/meter"
	"corral/isolate/wire"
	"corral/job"
	"corral/seccomp"
)

// A Slot is a prepared environment for one job: a stub that waits in fresh namespaces and in a cgroup of its own,
// confined as far as possible without knowing the job. It is used once.
type Slot struct {
	jail *Jail
	kindOf
	user         uint32 // number of the job's user in the jail
	limits       cgroup.Limits
	tmp          [2]int64 // limits in bytes and inodes of each private directory
	idmap        *os.File // user namespace that maps the repository's owner to the user; owned by the jail
	group        *cgroup.Job
	stub         stub                   // its process 1
	pidfd        *os.File               // readable when every process of the job has exited
	oom          atomic.Pointer[func()] // called when the kernel kills a process for lack of memory; nil before the slot has a job
	oomBeforeJob atomic.Bool            // the kernel killed a process for lack of memory before the slot had a job
	ready        bool                   // every step before the job is known was done
	jailIDs      bool                   // its user has the number that it has in the jail
	kind         inside.DoorKind        // what its network has, decided once: Jail.Allow may be called meanwhile
	door         []*os.File             // the sockets of its own door, see UseDoor; nil: none
	doneOnce     sync.Once              // ends its part in the jail's work
	news         []string               // mounts below the repository that its job is the first to have
}

// A kindOf says in what a slot differs from most of its jail. Most have none of it.
type kindOf struct {
	plain  bool // in the jail's own root, whatever the session has
	opens  bool // the stub makes the door of a session that had none
	apart  bool // in a network namespace of its own, whatever the session's jobs share
	noDoor bool // without a door, whatever the jail's jobs may reach
}

// Jail returns the slot's jail.
func (sl *Slot) Jail() *Jail { return sl.jail }

// Mounts returns the mounts below the repository that no earlier job of the jail had, in the form of wire.Result.Mounts.
func (sl *Slot) Mounts() string {
	var list strings.Builder
	for _, p := range sl.news {
		if list.Len()+len(p) < wire.MaxMounts {
			list.WriteString(p + "\x00")
		}
	}
	return list.String()
}

// Group returns the cgroup of the slot's processes.
func (sl *Slot) Group() meter.Group { return sl.group }

// hostUID returns the host user id of the job's user.
func (sl *Slot) hostUID() uint32 { return sl.jail.base + 1 + sl.user }

// others returns the maximum number of processes of the slot's user that belong to no job.
func (sl *Slot) others() int {
	if sl.jail.session == nil {
		return 0
	}
	return max(0, sl.jail.s.Slots)
}

// newSlot makes a slot with limits and prepares it. plain is for corral's own programs, which run in the jail's own
// root whatever the session has. The caller must call destroy.
func (j *Jail) newSlot(limits cgroup.Limits, profile string, plain bool) (*Slot, error) {
	return j.prepareSlot(&Slot{jail: j, limits: limits, kindOf: kindOf{plain: plain}}, profile)
}

// prepareSlot is newSlot for a slot whose jail, limits and kind are set.
func (j *Jail) prepareSlot(sl *Slot, profile string) (*Slot, error) {
	d := j.s.Defaults
	sl.tmp[0], sl.tmp[1] = d.Private()
	if !j.addSlot() {
		return nil, errJailEnded
	}
	var u host.Cleanup
	defer u.Run()
	u.Push(sl.done)
	var err error
	left := false // a process may be left: then its user id is not reused
	if sl.user, err = j.takeUser(profile == seccomp.Scanner); err != nil {
		return nil, err
	}
	u.Push(func() {
		if !left {
			j.users.giveBack(sl.user, false)
		}
	})
	if sl.idmap, err = j.users.idmap(sl.user); err != nil {
		return nil, err
	}
	if sl.group, err = j.groups.Begin(j.s.Instance.Unique("job-"), sl.limits); err != nil {
		return nil, err
	}
	u.Push(func() {
		err := sl.group.Remove()
		left = err != nil
		j.report("cgroup", err)
	})
	sl.kind = sl.doorKind(profile)
	p := sl.preparation()
	err = sl.startStub(&p, profile)
	if sl.pidfd == nil {
		return nil, err
	}
	u.Cancel() // from here on there is a process, and destroy undoes everything
	u.Push(sl.destroy)
	if err == nil {
		err = sl.confine(&p, profile)
	}
	if err != nil {
		return nil, err
	}
	u.Cancel()
	sl.ready = true
	return sl, nil
}

// takeUser returns the number of a user that no other slot has. While slots that jobs have used have all of them, it tears such slots
// down itself: jobs that come faster than the pool's goroutine does that wait for their own share of it.
func (j *Jail) takeUser(own bool) (uint32, error) {
	for {
		n, err := j.users.take(own)
		if err == nil || !j.pool.relieve() {
			return n, err
		}
	}
}

// onOOM ends the whole job when the kernel kills one of its processes for lack of memory.
func (sl *Slot) onOOM() {
	if end := sl.oom.Load(); end != nil {
		(*end)()
		return
	}
	sl.oomBeforeJob.Store(true)
}

// EndOnOOM makes the slot call end when the kernel kills a process in it for lack of memory.
func (sl *Slot) EndOnOOM(end func()) { sl.oom.Store(&end) }

// Report receives the next report of the slot's stub. The caller closes the files.
func (sl *Slot) Report() (inside.Report, []*os.File, error) { return sl.stub.report() }

// UseDoor opens the door of the slot's network namespace, if that has one, by a call of open with its sockets, which stay
// the slot's or, if the door is that of a session, which is opened once, the session's. end returns what the job reached, and
// closes the door of a single job.
func (sl *Slot) UseDoor(open func(sockets []*os.File) (Door, error)) (end func() (report string), err error) {
	if shared := sl.jail.door.Load(); shared != nil && sl.network() == inside.AskNetSlot {
		d, err := shared.use(open)
		if err != nil {
			return nil, err
		}
		return d.Report, nil
	}
	if sl.door == nil {
		return func() string { return "" }, nil
	}
	d, err := open(sl.door)
	if err != nil {
		return nil, err
	}
	return d.Close, nil
}

// Release tears the slot down in the background, after a job has used it.
func (sl *Slot) Release() { sl.contain(func() { sl.jail.pool.release(sl) }) }

// stubPatience is how long a stub may take to see that its socket was closed, and the kernel to tear it down.
const stubPatience = 200 * time.Millisecond

// AwaitGone waits until every process of the slot has exited, for the configured time at most.
func (sl *Slot) AwaitGone() error { return sl.wait(sl.jail.s.Ending) }

// destroy ends what is left of the slot and releases its resources. If that takes longer than stubPatience, it
// continues in the background, so that only the jail's teardown waits for it.
func (sl *Slot) destroy() {
	sl.contain(func() {
		sl.stub.conn.Close()
		if err := sl.wait(stubPatience); err == nil {
			sl.giveBack()
			return
		}
		go sl.contain(func() {
			if err := sl.group.Kill(); err != nil {
				sl.jail.report("processes", err)
			}
			sl.awaitEnd()
		})
	})
}

// contain calls f, which ends the slot. After a panic its cgroup and user id are not used again, as of a slot whose processes do not exit,
// and its jail takes no further job.
func (sl *Slot) contain(f func()) {
	if fault.Do(sl.jail.s.Log, "the end of a slot", f, "jail", sl.jail.name) {
		sl.HangUp()
		sl.jail.Retire()
		sl.done()
	}
}

// done ends what the jail's end waits for. It may be called again.
func (sl *Slot) done() { sl.doneOnce.Do(sl.jail.work.Done) }

// awaitEnd releases the slot's resources when its processes have exited. That may take long: the kernel removes a
// million epoll watches per second, and a process may be blocked by a file system that does not answer. awaitEnd waits
// as long as the jail exists. A process that has not exited by then keeps its cgroup and user id, and neither
// is reused.
func (sl *Slot) awaitEnd() {
	for reported := false; ; reported = true {
		err := sl.wait(sl.jail.s.Ending)
		if err == nil {
			sl.giveBack()
			return
		}
		if !reported {
			sl.jail.report("processes that have not ended yet", err)
		}
		if !sl.jail.alive() || !errors.Is(err, os.ErrDeadlineExceeded) {
			sl.done()
			return
		}
	}
}

// giveBack releases the slot's resources. No process of it is left.
func (sl *Slot) giveBack() {
	defer sl.done()
	sl.pidfd.Close()
	sl.jail.discard(sl.door)
	if err := sl.group.Remove(); err != nil {
		sl.jail.report("cgroup", err)
		return
	}
	sl.jail.users.giveBack(sl.user, sl.ready)
}

// TakeSlot returns a prepared slot: a waiting one, or a new one. Its job sees the host's /etc as it is now, except in a session
// with a root of its own.
func (j *Jail) TakeSlot(plain bool) (*Slot, error) {
	return j.takeSlot(kindOf{plain: plain && len(j.view.roots) > 0})
}

// TakeApart returns a slot that shares no network with others, made for this job: jobs that may reach less than their session are few.
// door says that the job may reach hosts, through a door of its own.
func (j *Jail) TakeApart(door bool) (*Slot, error) {
	return j.takeSlot(kindOf{apart: true, noDoor: !door})
}

func (j *Jail) takeSlot(k kindOf) (*Slot, error) {
	if err := j.s.roots.refresh(j.root); err != nil { // what the jail has still works
		j.s.Log.Warn("/etc of a jail not refreshed", "jail", j.name, "error", err)
	}
	if k == (kindOf{}) {
		if sl := j.pool.take(); sl != nil {
			return sl, nil
		}
	}
	return j.slotFor(k)
}

// slotFor makes a slot for a job.
func (j *Jail) slotFor(k kindOf) (*Slot, error) {
	if k.plain {
		return j.newSlot(j.s.groupLimits(j.s.Defaults), j.key.profile, true)
	}
	return j.plainSlot(k)
}

// Replace returns a new slot for the job whose slot failed with ErrSlotKilled.
func (sl *Slot) Replace() (*Slot, error) {
	sl.EndOnOOM(func() {}) // the job is not in it
	return sl.jail.slotFor(sl.kindOf)
}

// plainSlot makes a slot with the jail's default limits and profile, as most jobs need. Some hosts permit user namespaces to nobody but
// root (kernel.unprivileged_userns_clone): there, the number of a job's user is that in the jail. It is so for a single slot when the
// jail has too many namespaces, because others keep those of jobs that have ended: that must not reach other jails, nor refuse a job.
func (j *Jail) plainSlot(k kindOf) (*Slot, error) {
	limits := j.s.groupLimits(j.s.Defaults)
	sl, err := j.prepareSlot(&Slot{jail: j, limits: limits, kindOf: k}, j.key.profile)
	var refused *job.Refusal
	if !errors.As(err, &refused) || refused.Step != inside.OwnIDs {
		return sl, err
	}
	errno := unix.Errno(refused.Errno)
	if (errno == unix.EPERM || errno == unix.EACCES) && !j.s.jailIDs.Swap(true) {
		j.s.Log.Warn("a job's user has another number than the repository's owner: this host permits no user namespaces in a jail", "error", err)
	}
	return j.prepareSlot(&Slot{jail: j, limits: limits, kindOf: k, jailIDs: true}, j.key.profile)
}

// groupLimits returns the limits of the cgroup of a job with limits l.
func (s *Jails) groupLimits(l job.Limits) cgroup.Limits {
	g := cgroup.Limits{MemoryBytes: l.Memory, PIDs: l.PIDs}
	if l.MilliCPUs != job.Unlimited {
		g.MilliCPUs = l.MilliCPUs
	}
	if s.Skip == 0 {
		return g
	}
	for name, limit := range map[string]*int64{inside.MemoryLimit: &g.MemoryBytes, inside.PIDsLimit: &g.PIDs, inside.CPULimit: &g.MilliCPUs} {
		if inside.Skips(s.Skip, name) {
			*limit = 0
		}
	}
	return g
}

// wait blocks until every process of the slot has exited: the stub is process 1 of their PID namespace, and the
// kernel reports its exit only when the namespace is empty.
func (sl *Slot) wait(patience time.Duration) error {
	raw, err := sl.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	if err := sl.pidfd.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return fmt.Errorf("pidfd: %w", err)
	}
	return raw.Read(host.Readable)
}

// usable reports whether a job can have the slot. When the host ran out of memory, the kernel may have killed its
// stub.
func (sl *Slot) usable() bool {
	if sl.oomBeforeJob.Load() || sl.kind == inside.NoDoor && sl.doorKind(sl.jail.key.profile) != inside.NoDoor {
		return false // it is spoiled, or was made before the jail's jobs could reach hosts
	}
	return !host.SomethingToRead(sl.pidfd)
}

// Kill kills every process of the slot, including the stub, and closes the stub's socket, which ends follow.
func (sl *Slot) Kill() {
	skip := sl.jail.s.Skip
	if !inside.Skips(skip, inside.StubEnd) {
		defer sl.HangUp()
	}
	if !inside.Skips(skip, inside.Kill) {
		if err := sl.group.Kill(); err != nil {
			sl.jail.report("processes", err)
		}
	}
}

// HangUp closes the stub's socket: the stub ends the job, and follow ends.
func (sl *Slot) HangUp() { sl.stub.conn.Close() }

// Account adds the job's resource usage, and which limits it reached, to r.
func (sl *Slot) Account(r *wire.Result) {
	u, e, err := sl.group.Account()
	if err != nil {
		sl.jail.report("usage not read", err)
	}
	r.CPU, r.User, r.System = int64(u.CPU), int64(u.User), int64(u.System)
	r.PeakMemory, r.PeakPIDs, r.ReadBytes, r.WriteBytes = u.PeakMemory, u.PeakPIDs, u.IORead, u.IOWrite
	r.OOM, r.UserMemory, r.PIDsMax = e.OOM || e.OOMKills > 0, e.UserLimit, e.PIDsMax > 0
}

// Usage returns the CPU time in nanoseconds of the job so far, and its peak memory and its memory now in bytes, -1 where unknown.
// The slot must not have been released.
func (sl *Slot) Usage() (cpu, peak, memory int64) {
	u, _, _ := sl.group.Account() // what could not be read is -1
	return int64(u.CPU), u.PeakMemory, sl.group.Memory()
}

// Command opens the command line of the job's first process. The slot must not have been released.
func (sl *Slot) Command() (*os.File, error) { return host.OpenCommand(sl.pidfd) }

// Signal makes the stub send a signal to the job. The job may have ended.
func (sl *Slot) Signal(s wire.Signal) {
	_ = sl.stub.conn.Send(inside.Order{Signal: int(s.Number), Everyone: s.Everyone, Ending: s.Ends}.Append())
}
