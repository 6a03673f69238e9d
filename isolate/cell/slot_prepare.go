package cell

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/wire"
	"corral/seccomp"
)

// ownIDs reports whether the user of the jail's jobs has the number of the repository's owner. In the root file system of an image it is
// a number that the image has.
func (j *Jail) ownIDs() bool {
	return len(j.view.roots) == 0 && !j.s.jailIDs.Load() && !inside.Skips(j.s.Skip, inside.OwnIDs)
}

// preparation returns the message that prepares the slot's stub before the job is known.
func (sl *Slot) preparation() inside.Prepare {
	j := sl.jail
	p := inside.Prepare{
		UID: host.FirstJobUID + sl.user, Skip: j.s.Skip, TmpBytes: sl.tmp[0], TmpInodes: sl.tmp[1], Binds: j.late, Door: sl.kind,
	}
	if j.ownIDs() && !sl.plain && !sl.jailIDs {
		p.OwnUID, p.OwnGID = j.repo.Inside()
		if inside.Skips(j.s.Skip, inside.NoUserNamespaces) {
			p.Below = host.JobUIDs
		}
	}
	if len(j.view.roots) > 0 && !sl.plain {
		p.Binds = nil
		for _, r := range j.view.roots {
			p.Roots = append(p.Roots, inside.Root{Target: r.target})
		}
	}
	if sl.user == 0 { // otherwise it is the scanner's user
		for _, s := range j.view.shares {
			p.Shares = append(p.Shares, inside.Root{Target: s.target})
		}
	}
	return p
}

// network returns the init's operation that starts the slot's stub. The jobs of a session that share their files share the network
// namespace of its jail as well, so that one of them can connect to a server that another one runs. The scanner, corral's
// own programs in a session with a root of its own, and jobs that may reach less than their session have others.
func (sl *Slot) network() uint32 {
	if ss := sl.jail.session; ss != nil && ss.sharesNetwork() && sl.user == 0 && !sl.plain && !sl.apart {
		return inside.AskNetSlot
	}
	return inside.AskSlot
}

// doorKind returns what the network of a slot with this profile has. The scanner and corral's own programs have no door.
func (sl *Slot) doorKind(profile string) inside.DoorKind {
	switch {
	case sl.plain || sl.noDoor || profile == seccomp.Scanner:
		return inside.NoDoor
	case sl.opens:
		return inside.OpenDoor
	case !sl.jail.Connects():
		return inside.NoDoor
	case sl.jail.door.Load() != nil && !sl.apart:
		return inside.DoorThere
	}
	return inside.OpenDoor
}

// startStub makes the init start the slot's stub, in the slot's cgroup of the unified hierarchy if a process can be
// created there. If the slot has a pidfd afterwards, there is a process, whatever the error.
func (sl *Slot) startStub(p *inside.Prepare, profile string) error {
	ours, theirs, err := wire.PairFor(host.StubMessage)
	if err != nil {
		return err
	}
	defer theirs.Close()
	sl.stub = stub{ours}
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
	f, err := sl.jail.init.ask(sl.network(), func() { failed = sl.completeGroups(p, profile) }, files...)
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
func (sl *Slot) completeGroups(p *inside.Prepare, profile string) error {
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
	return sl.sendPrepare(p, profile, groups)
}

func (sl *Slot) sendPrepare(p *inside.Prepare, profile string, groups []*os.File) error {
	filter := sl.jail.s.filters[profile]
	programs, err := filter.file(p.Numbers())
	if err != nil {
		return err
	}
	defer programs.Close()
	p.Last = len(filter.last)
	return stubError(sl.stub.conn.Send(p.Append(), append([]*os.File{programs}, groups...)...))
}

// confine makes the stub run the confinement steps that do not depend on the job, in all of the slot's cgroups.
// Process 2, which the stub then forks, starts in the stub's cgroups: so the stub joins them first by itself, and
// where it cannot, it is put into them here.
func (sl *Slot) confine(p *inside.Prepare, profile string) error {
	if sl.group.Dir() < 0 {
		if err := sl.attach(); err != nil {
			return err
		}
		if err := sl.sendPrepare(p, profile, nil); err != nil {
			return err
		}
	}
	for _, b := range p.Binds {
		if err := sl.stub.conn.Send(b.Append()); err != nil {
			return stubError(err)
		}
	}
	if err := sl.stub.sendMounts(p.Shares, sl.jail.view.sharedMounts); err != nil {
		return stubError(err)
	}
	if err := sl.stub.sendMounts(p.Roots, sl.jail.view.rootMounts); err != nil {
		return stubError(err)
	}
	var err error
	if sl.door, err = sl.stub.awaitReady(); err != nil || p.Groups == 0 {
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

func dup(fd int) (*os.File, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("dup: %w", err)
	}
	return os.NewFile(uintptr(n), "cgroup"), nil
}
