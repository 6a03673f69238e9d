package isolate

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"corral/cgroup"
	inside "corral/isolate/jail"
	"corral/isolate/wire"
	"corral/job"
)

// slotPatience bounds each wait for an answer from inside a jail, which does nothing but system calls: far above what
// a loaded machine needs, so that only a broken one meets it.
const slotPatience = 20 * time.Second

// stubMessage is more than a report has, in bytes; many slots wait for one.
const stubMessage = 256

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
	if sl.user, err = j.takeUser(profile); err != nil {
		return nil, err
	}
	u.push(func() { j.returnUser(sl.user) })
	if sl.idmap, err = j.idmap(sl.user); err != nil {
		return nil, err
	}
	if sl.group, err = j.groups.Job(j.s.name("job-"), limits); err != nil {
		return nil, err
	}
	u.push(func() { j.report("cgroup", sl.group.Remove()) })
	if err := sl.group.WatchOOM(sl.outOfMemory); err != nil {
		return nil, err
	}
	if err := j.startStub(sl); err != nil {
		return nil, err
	}
	u.keep() // from here on there is a process, and all goes with it
	if err := j.confine(sl, profile); err != nil {
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

// startStub has the init start the slot's stub, in its group of the unified hierarchy where a process can be born there.
func (j *jail) startStub(sl *slot) error {
	ours, theirs, err := wire.PairFor(stubMessage)
	if err != nil {
		return err
	}
	defer theirs.Close()
	sl.stub = ours
	files := []*os.File{theirs}
	if fd := sl.group.Dir(); fd >= 0 {
		dir, err := dup(fd)
		if err != nil {
			ours.Close()
			return err
		}
		defer dir.Close()
		files = append(files, dir)
	}
	sl.pidfd, err = j.askSlot(files)
	if err != nil {
		ours.Close()
	}
	return err
}

// confine has the stub do what can be done before the job is known, in all of the slot's groups. Process 2, which it forks
// then, is born in those where it is itself: it joins them first by itself, and is put into them here where it cannot.
func (j *jail) confine(sl *slot, profile string) error {
	if sl.group.Dir() < 0 {
		if err := sl.attach(); err != nil {
			return err
		}
		return j.prepare(sl, profile, nil)
	}
	groups, err := sl.group.Tasks()
	if err != nil {
		return err
	}
	defer wire.CloseAll(groups)
	if err := j.prepare(sl, profile, groups); err != nil || len(groups) == 0 {
		return err
	}
	return sl.attach() // sees that it did
}

// attach puts the stub, and what it has forked, into those of the slot's groups where they are not.
func (sl *slot) attach() error {
	pid, err := pidOf(sl.pidfd)
	if err != nil {
		return err
	}
	return sl.group.Attach(pid)
}

// ask sends the init a request and returns the descriptor that it answers with.
func (j *jail) ask(what uint32, files ...*os.File) (*os.File, error) {
	j.initMu.Lock()
	defer j.initMu.Unlock()
	j.requests++
	if err := j.init.Send(inside.AppendRequest(j.requests, what), files...); err != nil {
		return nil, fmt.Errorf("the jail's init: %w", err)
	}
	answer, got, err := j.init.Receive()
	if err != nil {
		return nil, fmt.Errorf("the jail's init: %w", err)
	}
	number, errno, err := inside.ReadRequest(answer)
	if err == nil && errno != 0 {
		err = fmt.Errorf("the jail's init: %w", unix.Errno(errno))
	}
	if err == nil && (number != j.requests || len(got) != 1) {
		err = errors.New("the jail's init answered something else than was asked")
	}
	if err != nil {
		wire.CloseAll(got)
		return nil, err
	}
	return got[0], nil
}

// askSlot has the init start a stub and returns its pidfd.
func (j *jail) askSlot(files []*os.File) (*os.File, error) {
	f, err := j.ask(inside.AskSlot, files...)
	if err != nil {
		return nil, err
	}
	return pollable(f)
}

func dup(fd int) (*os.File, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("dup: %w", err)
	}
	return os.NewFile(uintptr(n), "cgroup"), nil
}

// prepare has the stub do everything that does not depend on the job, and join the groups whose tasks files these are.
func (j *jail) prepare(sl *slot, profile string, groups []*os.File) error {
	p := inside.Prepare{UID: firstJobUID + sl.user, Skip: j.s.config.skip, TmpBytes: sl.tmp[0], TmpInodes: sl.tmp[1], Groups: len(groups), Binds: j.late}
	if len(j.roots) > 0 && !sl.plain {
		p.Binds = nil
		for _, r := range j.roots {
			p.Roots = append(p.Roots, inside.Root{Target: r.target})
		}
	}
	if err := sl.stub.Send(p.Append(), append([]*os.File{j.s.filters[profile]}, groups...)...); err != nil {
		return fmt.Errorf("the stub: %w", err)
	}
	for _, b := range p.Binds {
		if err := sl.stub.Send(b.Append()); err != nil {
			return fmt.Errorf("the stub: %w", err)
		}
	}
	if err := j.sendRoots(sl, p.Roots); err != nil {
		return fmt.Errorf("the stub: %w", err)
	}
	for {
		r, files, err := sl.report()
		wire.CloseAll(files)
		if err != nil {
			return fmt.Errorf("the stub: %w", err)
		}
		switch r.Kind {
		case inside.Hello:
		case inside.Ready:
			return nil
		case inside.Failed:
			return &job.Refusal{Step: r.Step, Errno: int(r.Errno), Message: fmt.Sprintf("confinement step %q: %v", r.Step, unix.Errno(r.Errno))}
		default:
			return fmt.Errorf("the stub: %w", inside.ErrReport)
		}
	}
}

// sendRoots sends the mounts of a root of the session's own.
func (j *jail) sendRoots(sl *slot, roots []inside.Root) error {
	if len(roots) == 0 {
		return nil
	}
	mounts, err := j.pieces()
	if err != nil {
		return err
	}
	defer wire.CloseAll(mounts)
	for n, r := range roots {
		if err := sl.stub.Send(r.Append(), mounts[n]); err != nil {
			return err
		}
	}
	return nil
}

func (sl *slot) report() (inside.Report, []*os.File, error) {
	b, files, err := sl.stub.Receive()
	if err != nil {
		return inside.Report{}, nil, err
	}
	r, err := inside.ReadReport(b)
	return r, files, err
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
		if err := sl.wait(slotPatience); err != nil {
			// A process that cannot be killed keeps its cgroup and its user id: neither is used again.
			sl.jail.report("processes in an uninterruptible state", err)
			sl.jail.work.Done()
			return
		}
		sl.giveBack()
	}()
}

// giveBack gives back what the slot had, of which no process is left.
func (sl *slot) giveBack() {
	defer sl.jail.work.Done()
	sl.pidfd.Close()
	if err := sl.group.Remove(); err != nil {
		sl.jail.report("cgroup", err)
		return
	}
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
