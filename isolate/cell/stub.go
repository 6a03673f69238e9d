package cell

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/wire"
	"corral/job"
)

// preparation returns the message that prepares the slot's stub before the job is known.
func (j *Jail) preparation(sl *Slot) inside.Prepare {
	p := inside.Prepare{UID: host.FirstJobUID + sl.user, Skip: j.s.Skip, TmpBytes: sl.tmp[0], TmpInodes: sl.tmp[1], Binds: j.late}
	if len(j.roots) > 0 && !sl.plain {
		p.Binds = nil
		for _, r := range j.roots {
			p.Roots = append(p.Roots, inside.Root{Target: r.target})
		}
	}
	if sl.user == 0 { // otherwise it is the scanner's user
		for _, s := range j.shares {
			p.Shares = append(p.Shares, inside.Root{Target: s.target})
		}
	}
	return p
}

// startStub makes the init start the slot's stub, in the slot's cgroup of the unified hierarchy if a process can be
// created there. If the slot has a pidfd afterwards, there is a process, whatever the error.
func (j *Jail) startStub(sl *Slot, p *inside.Prepare, profile string) error {
	ours, theirs, err := wire.PairFor(host.StubMessage)
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
	var failed error
	f, err := j.ask(inside.AskSlot, func() { failed = j.completeGroups(sl, p, profile) }, files...)
	if err == nil {
		sl.pidfd, err = host.Pollable(f)
	}
	if sl.pidfd == nil {
		ours.Close()
	}
	return errors.Join(failed, err)
}

// completeGroups completes the slot's cgroups while the kernel creates its namespaces. If the stub is created in one
// of them, completeGroups also sends it the first message, with the tasks files of the cgroups that it joins by
// itself.
func (j *Jail) completeGroups(sl *Slot, p *inside.Prepare, profile string) error {
	if err := sl.group.Complete(); err != nil {
		return err
	}
	if err := sl.group.WatchOOM(sl.onOOM); err != nil || sl.group.Dir() < 0 {
		return err
	}
	groups, err := sl.group.Tasks()
	if err != nil {
		return err
	}
	defer wire.CloseAll(groups)
	p.Groups = len(groups)
	return j.sendPrepare(sl, p, profile, groups)
}

func (j *Jail) sendPrepare(sl *Slot, p *inside.Prepare, profile string, groups []*os.File) error {
	filter := j.s.filters[profile]
	p.Last = filter.last
	return stubError(sl.stub.Send(p.Append(), append([]*os.File{filter.file}, groups...)...))
}

func stubError(err error) error {
	if err != nil {
		return fmt.Errorf("the stub: %w", err)
	}
	return nil
}

// confine makes the stub run the confinement steps that do not depend on the job, in all of the slot's cgroups.
// Process 2, which the stub then forks, starts in the stub's cgroups: so the stub joins them first by itself, and
// where it cannot, it is put into them here.
func (j *Jail) confine(sl *Slot, p *inside.Prepare, profile string) error {
	if sl.group.Dir() < 0 {
		if err := sl.attach(); err != nil {
			return err
		}
		if err := j.sendPrepare(sl, p, profile, nil); err != nil {
			return err
		}
	}
	for _, b := range p.Binds {
		if err := sl.stub.Send(b.Append()); err != nil {
			return stubError(err)
		}
	}
	if err := sl.sendMounts(p.Shares, j.sharedMounts); err != nil {
		return stubError(err)
	}
	if err := sl.sendMounts(p.Roots, j.rootMounts); err != nil {
		return stubError(err)
	}
	if err := sl.awaitReady(); err != nil || p.Groups == 0 {
		return err
	}
	return sl.attach() // verifies that the stub joined them
}

// attach puts the stub, and what it has forked, into those of the slot's cgroups that they are not in.
func (sl *Slot) attach() error {
	pid, err := host.PidOf(sl.pidfd)
	if err != nil {
		return err
	}
	return sl.group.Attach(pid)
}

// ask sends the init a request and returns the descriptor in its answer. It calls meanwhile before it waits for that.
// An init that does not answer in time may be blocked by the repository's file system: the jail is then retired.
func (j *Jail) ask(what uint32, meanwhile func(), files ...*os.File) (*os.File, error) {
	j.initMu.Lock()
	defer j.initMu.Unlock()
	j.requests++
	j.init.SetDeadline(time.Now().Add(host.SlotPatience))
	defer context.AfterFunc(j.s.Context, func() { j.init.SetDeadline(time.Unix(1, 0)) })()
	if err := j.init.Send(inside.AppendRequest(j.requests, what), files...); err != nil {
		return nil, j.initFailed(err)
	}
	meanwhile()
	answer, got, err := j.init.Receive()
	if err != nil {
		return nil, j.initFailed(err)
	}
	number, errno, err := inside.ReadRequest(answer)
	if err == nil && errno != 0 {
		err = fmt.Errorf("the jail's init: %w", unix.Errno(errno))
	}
	if err == nil && (number != j.requests || len(got) != 1) {
		err = errors.New("the jail's init sent an answer that does not match the request")
	}
	if err != nil {
		wire.CloseAll(got)
		return nil, err
	}
	return got[0], nil
}

func (j *Jail) initFailed(err error) error {
	if j.s.Context.Err() != nil {
		return host.ErrEnding
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		j.dropScanner()
	}
	return fmt.Errorf("the jail's init: %w", err)
}

func dup(fd int) (*os.File, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("dup: %w", err)
	}
	return os.NewFile(uintptr(n), "cgroup"), nil
}

// within sets the timeout for the stub's next reports, until lift is called.
func (sl *Slot) within(patience time.Duration) (lift func()) {
	sl.stub.SetDeadline(time.Now().Add(patience))
	return func() { sl.stub.SetDeadline(time.Time{}) }
}

// awaitReady waits until the stub has completed every step that does not depend on the job.
func (sl *Slot) awaitReady() error {
	defer sl.within(host.SlotPatience)()
	for {
		r, files, err := sl.Report()
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

// sendMounts sends the stub the mounts of list; mounts makes them in the list's order.
func (sl *Slot) sendMounts(list []inside.Root, mounts func() ([]*os.File, error)) error {
	if len(list) == 0 {
		return nil
	}
	files, err := mounts()
	if err != nil {
		return err
	}
	defer wire.CloseAll(files)
	for n, m := range list {
		if err := sl.stub.Send(m.Append(), files[n]); err != nil {
			return err
		}
	}
	return nil
}

func (sl *Slot) Report() (inside.Report, []*os.File, error) {
	b, files, err := sl.stub.Receive()
	if err != nil {
		return inside.Report{}, nil, err
	}
	r, err := inside.ReadReport(b)
	return r, files, err
}
