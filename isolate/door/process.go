package door

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"corral/cgroup"
	"corral/egress/control"
	"corral/isolate/host"
	"corral/isolate/wire"
)

// Connections is how many connections to hosts there may be at once.
type Connections struct {
	Job  int // through one door; 0 is 256
	User int // through all doors of a user; 0 is 1,792
}

// Complete sets fields that are 0 to their defaults.
func (c *Connections) Complete() {
	c.Job, c.User = cmp.Or(c.Job, 256), cmp.Or(c.User, defaultUser)
}

const defaultUser = 1792

// Limits of a process of corral-egress.
const (
	// maxMemory is for the default number of connections, whose buffers take 112 MiB if all are busy. More of them add buffers for each.
	maxMemory  = 512 << 20
	perConn    = 64 << 10
	maxThreads = 512
	// oomScore is that of a job's processes: neither is spared.
	oomScore = 500
)

// memory returns the limit of memory in bytes.
func (c Connections) memory() int64 { return maxMemory + int64(max(0, c.User-defaultUser))*perConn }

// A process is one process of corral-egress.
type process struct {
	conn  *wire.Conn
	pid   int
	group *cgroup.Job
	keep  int64 // bytes of packages that it was to keep; 0: none
}

// A packages is what a process gets to keep packages in.
type packages struct {
	dir  *os.File // nil: nothing
	keep int64    // bytes that the configuration says
	size int64    // bytes that it may keep
}

// packages returns the store of a user for a process with a user id. Without one, jobs get everything from registries.
func (d *Doors) packages(payer, uid uint32) packages {
	p := packages{keep: d.keeps(payer)}
	if p.keep == 0 {
		return p
	}
	var err error
	if p.dir, p.size, err = d.Store(payer, uid, p.keep); err != nil {
		d.report("packages are not kept", err)
		p.dir = nil
	}
	return p
}

// keeps returns how many bytes of packages the process of a user should keep.
func (d *Doors) keeps(payer uint32) int64 {
	if d.Keep == nil {
		return 0
	}
	return d.Keep(payer)
}

// errDescriptors ends a process that sends descriptors: it has none to send.
var errDescriptors = errors.New("corral-egress sent descriptors")

// start starts the process of a user, with user and group id uid. lines gets what it logs.
func (d *Doors) start(payer, uid uint32, lines *lineLog) (_ *process, err error) {
	var u host.Cleanup
	defer u.Run()
	group, err := d.groups.Job(d.Instance.Unique("egress-"), cgroup.Limits{MemoryBytes: d.Connections.memory(), PIDs: maxThreads})
	if err != nil {
		return nil, err
	}
	u.Push(func() { d.report("cgroup", group.Remove()) })
	ours, theirs, err := wire.PairFor(control.MaxText + 64)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	u.Push(func() { ours.Close() })
	ours.Patience = d.Patience
	ours.Guard = func(int, []byte) ([]byte, []*os.File, error) { return nil, nil, errDescriptors }
	kept := d.packages(payer, uid)
	defer wire.CloseAll([]*os.File{kept.dir})
	pid, err := d.fork(uid, theirs, kept, group, lines)
	if err != nil {
		return nil, err
	}
	u.Push(func() { end(pid) })
	if err := confine(pid, group); err != nil {
		return nil, err
	}
	u.Cancel()
	return &process{conn: ours, pid: pid, group: group, keep: kept.keep}, nil
}

// fork starts the program, in the group if the kernel can start it there.
func (d *Doors) fork(uid uint32, socket *os.File, kept packages, group *cgroup.Job, lines *lineLog) (pid int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	log := null
	if d.Log.Enabled(context.Background(), slog.LevelInfo) {
		var read *os.File
		if read, log, err = os.Pipe(); err != nil {
			return 0, err
		}
		defer log.Close()
		d.work.Go(func() { lines.copy(read) }) // ends with the process
	}
	attr := &syscall.ProcAttr{
		Dir: "/", Env: []string{
			"GOMEMLIMIT=" + strconv.FormatInt(d.Connections.memory()/4*3, 10),
			fmt.Sprintf("CORRAL_CONNECTIONS=%d,%d", d.Connections.Job, d.Connections.User),
		},
		Files: []uintptr{null.Fd(), null.Fd(), log.Fd(), socket.Fd(), d.filters[0].Fd()},
		Sys: &syscall.SysProcAttr{
			Setsid:     true, // a terminal's signals are for the supervisor alone, and the process group is its own
			Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
			Credential: &syscall.Credential{Uid: uid, Gid: uid},
		},
	}
	if kept.dir != nil {
		attr.Env = append(attr.Env, fmt.Sprintf("CORRAL_STORE_SIZE=%d", kept.size))
		attr.Files = append(attr.Files[:4:4], d.filters[1].Fd(), kept.dir.Fd())
	}
	if dir := group.Dir(); dir >= 0 {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, dir
	}
	pid, err = host.Fork(d.program, Program, attr)
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", Program, err)
	}
	return pid, nil
}

// confine puts a new process into its cgroups, and takes from it what it inherited of the supervisor's standing with the
// scheduler and the OOM killer. It has got no message yet.
func confine(pid int, group *cgroup.Job) error {
	if err := group.Attach(pid); err != nil {
		return err
	}
	if err := unix.Setpriority(unix.PRIO_PGRP, pid, 0); err != nil {
		return fmt.Errorf("setpriority: %w", err)
	}
	return os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), strconv.AppendInt(nil, oomScore, 10), 0)
}

// end kills and reaps a child.
func end(pid int) {
	_ = syscall.Kill(pid, syscall.SIGKILL)
	host.Reap(pid)
}

// end kills the process, and releases what it had. No goroutine may use the connection.
func (p *process) end(d *Doors) {
	p.conn.Close()
	end(p.pid)
	d.report("cgroup", p.group.Remove())
}
