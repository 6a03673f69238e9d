package isolate

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
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
}

// hostUID is the job's user on the host.
func (sl *slot) hostUID() uint32 { return sl.jail.base + 1 + sl.user }

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
	if err := j.startStub(sl, &u); err != nil {
		return nil, err
	}
	if err := j.prepare(sl, profile); err != nil {
		return nil, err
	}
	u.keep()
	return sl, nil
}

// startStub has the init start the slot's stub, and joins what cgroup v1 has no clone for.
func (j *jail) startStub(sl *slot, u *undo) error {
	ours, theirs, err := wire.Pair()
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
		return err
	}
	u.push(func() {
		ours.Close() // the stub ends with it
		j.report("process", sl.wait(slotPatience))
		sl.pidfd.Close()
	})
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

// pollable returns f anew, so that the runtime's poller can wait for it.
func pollable(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

func dup(fd int) (*os.File, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("dup: %w", err)
	}
	return os.NewFile(uintptr(n), "cgroup"), nil
}

// pidOf returns the process id, here, of the process a pidfd stands for (proc_pid_fdinfo(5)).
func pidOf(pidfd *os.File) (int, error) {
	var fd uintptr
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return 0, err
	}
	if err := raw.Control(func(n uintptr) { fd = n }); err != nil {
		return 0, err
	}
	f, err := os.Open(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "Pid:"); ok {
			pid, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil || pid <= 0 {
				return 0, errors.New("the stub ended at once")
			}
			return pid, nil
		}
	}
	return 0, errors.New("no Pid in a pidfd's fdinfo")
}

// prepare has the stub do everything that does not depend on the job.
func (j *jail) prepare(sl *slot, profile string) error {
	p := inside.Prepare{UID: firstJobUID + sl.user, Skip: j.s.config.skip, TmpBytes: sl.tmp[0], TmpInodes: sl.tmp[1], Binds: j.late}
	if len(j.roots) > 0 && !sl.plain {
		p.Binds = nil
		for _, r := range j.roots {
			p.Roots = append(p.Roots, inside.Root{Target: r.target})
		}
	}
	if err := sl.stub.Send(p.Append(), j.s.filters[profile]); err != nil {
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

// wait blocks until every process of the slot is gone: the stub is process 1 of their PID namespace, which the kernel
// empties before it lets go of the stub.
func (sl *slot) wait(patience time.Duration) error {
	raw, err := sl.pidfd.SyscallConn()
	if err != nil {
		return err
	}
	if err := sl.pidfd.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return fmt.Errorf("pidfd: %w", err)
	}
	return raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 && err == nil
	})
}

// destroy ends what is left of the slot and gives back what it had. It blocks until all is gone.
func (sl *slot) destroy() {
	defer sl.jail.work.Done()
	sl.stub.Close()
	if err := sl.wait(slotPatience); err != nil {
		// A process that cannot be killed keeps its cgroup and its user id: neither is used again.
		sl.jail.report("processes in an uninterruptible state", err)
		return
	}
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
	j.mu.Lock()
	if n := len(j.ready); n > 0 {
		sl := j.ready[n-1]
		j.ready = j.ready[:n-1]
		j.mu.Unlock()
		return sl, nil
	}
	j.mu.Unlock()
	return j.newSlot(groupLimits(j.s.config.Defaults), j.key.profile, false)
}

// spareSlots is how many slots of a jail wait at most.
const spareSlots = 2

// refill makes slots ahead until enough wait or are being made.
func (j *jail) refill() {
	for j.wantsSlot() {
		sl, err := j.newSlot(groupLimits(j.s.config.Defaults), j.key.profile, false)
		if !j.addSlot(sl, err) {
			return
		}
	}
}

func (j *jail) wantsSlot() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.ready)+j.filling >= spareSlots || j.dropped {
		return false
	}
	j.filling++
	return true
}

// addSlot takes in a slot that was made ahead, or notes why there is none. It says whether another may be tried.
func (j *jail) addSlot(sl *slot, err error) bool {
	j.mu.Lock()
	j.filling--
	keep := err == nil && !j.dropped
	if keep {
		j.ready = append(j.ready, sl)
	}
	j.mu.Unlock()
	switch {
	case errors.Is(err, errJailEnded), err != nil && !j.alive():
	case err != nil:
		j.s.config.Log.Warn("no slot made ahead", "jail", j.name, "error", err)
	case !keep:
		sl.destroy()
	}
	return keep
}

// alive says whether the jail is not being dropped.
func (j *jail) alive() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.dropped
}

// discardSlots destroys the slots that wait.
func (j *jail) discardSlots() {
	j.mu.Lock()
	ready := j.ready
	j.ready = nil
	j.mu.Unlock()
	for _, sl := range ready {
		sl.destroy()
	}
}

func groupLimits(l job.Limits) cgroup.Limits {
	g := cgroup.Limits{MemoryBytes: l.Memory, PIDs: l.PIDs}
	if l.MilliCPUs != job.Unlimited {
		g.MilliCPUs = l.MilliCPUs
	}
	return g
}
