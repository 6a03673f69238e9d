package cell

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // enforces cgroup v1 device rules for libcontainer
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // the first half of libcontainer's init, in C
	"golang.org/x/sys/unix"

	"corral/internal/fault"
	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/isolate/wire"
	"corral/job"
	"corral/rootfs"
)

// build makes everything that the jail consists of. The functions that undo it are pushed on u, also if build fails.
func (j *Jail) build(u *host.Cleanup) error {
	u.Push(j.repo.Close)
	u.Push(j.users.close)
	if err := j.inspect(); err != nil {
		return err
	}
	if err := j.takeIDs(u); err != nil {
		return err
	}
	base := j.base
	// For libcontainer's process; the steps until then do not wait for it.
	j.work.Go(func() { fault.Do(j.s.Log, "building a jail", j.s.Instance.Groups.Hasten) })
	dir := filepath.Join(j.s.Instance.Dir, "jails", j.name)
	if err := host.MakeDir(dir); err != nil {
		return err
	}
	u.Push(func() { j.report("directory", host.RemoveAll(dir)) })
	if j.session != nil {
		j.view = view{
			reporter: j.reporter, session: j.session, repo: j.repo, base: base, users: j.users,
			userns: j.s.Userns, hidden: &j.s.Survey.hidden, instance: j.s.Instance, etcFiles: j.s.EtcFiles,
		}
		if err := j.view.makeLayer(u, dir); err != nil {
			return err
		}
	}
	p, err := makeJailParts(u, dir, j.s.roots, j.repo, j.authority, func() (*os.File, error) { return j.s.Userns.JailMap(base) })
	if err != nil {
		return err
	}
	defer p.users.Close()
	j.root, j.trusted, j.view.trusted = p.root, p.root.trusted, p.root.trusted
	for _, b := range p.root.tree.Late {
		j.late = append(j.late, inside.Bind{Source: b.Source, Target: b.Target})
	}
	maps := make(chan error, 1)
	go func() {
		maps <- fault.Contain(j.s.Log, "building a jail", func() error { return j.users.prepare(j.firstUsers()) })
	}()
	mapsErr := sync.OnceValue(func() error { return <-maps })
	defer mapsErr() //nolint:errcheck // it uses what is undone after a panic
	err = j.start(u, dir, p)
	if err := cmp.Or(err, mapsErr()); err != nil {
		return err
	}
	if err := p.unmount(); err != nil {
		return err
	}
	if j.session != nil {
		if err := j.buildForSession(u, dir); err != nil {
			return err
		}
	} else { // a job is waiting for the jail: its slot is made while the scanner starts
		made := j.pool.begin()
		defer func() { <-made }()
	}
	if !j.Scanned() {
		return nil
	}
	if j.scanner, err = j.startScanner(); err != nil {
		return fmt.Errorf("start the scanner for sensitive paths: %w", err)
	}
	return nil
}

// buildForSession completes the jail of a session.
func (j *Jail) buildForSession(u *host.Cleanup, dir string) error {
	a := assembly{&j.view, j.init, u, dir, j.late}
	if err := a.assemble(); err != nil {
		return refuseLayer(fmt.Errorf("the session's layer: %w", err))
	}
	u.Push(j.closeDoor)
	if !j.key.door || !j.session.sharesNetwork() {
		return nil
	}
	return j.makeSharedDoor(false)
}

// takeIDs takes a block of user ids and makes the cgroups of the jail, which belong to its first id, below those of the user.
func (j *Jail) takeIDs(u *host.Cleanup) error {
	user, err := j.s.Instance.Groups.User(j.key.payer)
	if err != nil {
		return err
	}
	base, err := j.s.Instance.TakeUIDs()
	if err != nil {
		return err
	}
	groups, err := user.Jail(j.name, int(base))
	if err != nil {
		j.s.Instance.ReleaseUIDs(base)
		return err
	}
	j.base, j.groups = base, groups
	u.Push(func() {
		err := groups.Remove()
		j.report("cgroups", err)
		if err == nil { // otherwise a process with one of the ids may be alive
			j.s.Instance.ReleaseUIDs(base)
		}
	})
	return nil
}

// inspect records the file systems of the directories that the jail shows to its jobs. A session that imports a root
// file system has no repository.
func (j *Jail) inspect() error {
	if j.session != nil && j.session.Import {
		return nil
	}
	return j.s.Served.Now().Inspect(j.key.payer, j.repo)
}

// Scanned reports whether the jail needs a scanner: its jobs write to the repository itself, or paths must be
// protected when a session's changes are applied.
func (j *Jail) Scanned() bool {
	ss := j.session
	return ss == nil || ss.Workspace == job.Direct && !ss.Import
}

// firstUsers returns how many id maps are needed next: for the first job's user and, if the jail has a scanner, for its
// user.
func (j *Jail) firstUsers() uint32 {
	if j.Scanned() {
		return 2
	}
	return 1
}

// start makes libcontainer build the jail and start its init.
func (j *Jail) start(u *host.Cleanup, dir string, p *jailParts) error {
	ours, theirs, err := wire.Pair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	j.init = newInitProcess(j.s.Context, ours, j.dropScanner)
	u.Push(func() { ours.Close() })
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o711); err != nil {
		return err
	}
	j.container, err = libcontainer.Create(state, j.name, j.containerConfig(dir, p.root.tree, p.users))
	if err != nil {
		return fmt.Errorf("libcontainer: %w", err)
	}
	u.Push(func() { j.report("container", destroy(j.container)) })
	process := &libcontainer.Process{
		// Descriptors: 3 the socket, 4 the stub, 5 the init's own program.
		Args:       append([]string{"/proc/self/fd/5"}, inside.InitArgs(j.s.Skip, j.namespaces())...),
		Cwd:        "/",
		Env:        []string{"GOMAXPROCS=1"}, // the init has one thread of work
		ExtraFiles: []*os.File{theirs, j.s.Programs.Stub, j.s.Programs.Init},
		Stderr:     os.Stderr,
		Init:       true,
	}
	run := func() error {
		defer host.Forking()()
		return j.container.Run(process)
	}
	if err := run(); err != nil {
		return fmt.Errorf("libcontainer: %w", err)
	}
	pid, err := process.Pid()
	if err != nil {
		return err
	}
	if err := lowestScore(pid); err != nil {
		return err
	}
	go func() {
		defer close(j.init.ended)
		fault.Do(j.s.Log, "the end of a jail", func() {
			host.AwaitEnd(pid)
			_, _ = process.Wait()
		})
	}()
	u.Push(func() {
		j.endInit()
		j.awaitInit()
	})
	return j.groups.Adopt(pid)
}

func destroy(c *libcontainer.Container) error {
	err := c.Destroy()
	for wait := time.Millisecond; err != nil && wait < 500*time.Millisecond; wait *= 2 {
		time.Sleep(wait)
		err = c.Destroy()
	}
	return err
}

// jailCapabilities are the capabilities of the init and the stubs inside the jail's user namespace. No job gets any
// of them.
var jailCapabilities = []string{
	"CAP_SYS_ADMIN",                           // namespaces and mounts
	"CAP_NET_ADMIN",                           // bring loopback up
	"CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", // become the job's user without privileges
	"CAP_SETFCAP",                                 // map the jail's root in the user namespace of a job, see own_ids of the stub
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", // set up the job's home directory and mount points
	"CAP_KILL",         // send signals to the job
	"CAP_SYS_RESOURCE", // set limits of the job's user
}

// namespaces returns the maximum number of user namespaces of one of the jail's users: the jobs of a session share one.
func (j *Jail) namespaces() int {
	if j.ownIDs() {
		return host.JobUIDs
	}
	return 0
}

func (j *Jail) containerConfig(dir string, tree rootfs.Tree, users *os.File) *configs.Config {
	ids := []configs.IDMap{
		{ContainerID: 0, HostID: int64(j.base), Size: 1},
		{ContainerID: host.FirstJobUID, HostID: int64(j.base) + 1, Size: host.JobUIDs},
	}
	score := oomScoreAdj
	caps := &configs.Capabilities{Bounding: jailCapabilities, Effective: jailCapabilities, Permitted: jailCapabilities}
	c := &configs.Config{
		Rootfs: filepath.Join(dir, "root"), Readonlyfs: true, RootPropagation: unix.MS_SLAVE | unix.MS_REC,
		Hostname: "jail", NoNewPrivileges: true, Capabilities: caps,
		UIDMappings: ids, GIDMappings: ids,
		Mounts: j.mounts(dir, tree),
		// When the host runs out of memory, jobs are killed before the operator's processes.
		OomScoreAdj: &score,
		Cgroups:     &cgroups.Cgroup{Path: j.groups.Path(), Resources: &cgroups.Resources{Devices: deviceRules()}},
	}
	c.Namespaces.Add(configs.NEWUSER, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), users.Fd()))
	for _, n := range []configs.NamespaceType{
		configs.NEWNS, configs.NEWPID, configs.NEWNET, configs.NEWIPC, configs.NEWUTS, configs.NEWCGROUP,
	} {
		c.Namespaces.Add(n, "")
	}
	return c
}

const oomScoreAdj = 500 // range -1000 to 1000, see proc_pid_oom_score_adj(5)

// lowestScore makes the current OOM score adjustment of a jail's first process the minimum for it and all of its
// descendants, which the stub of a slot raises: the kernel records a value as the minimum when a process with
// CAP_SYS_RESOURCE writes it. Otherwise jobs could lower theirs to 0.
func lowestScore(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), strconv.AppendInt(nil, oomScoreAdj, 10), 0)
}

// deviceRules allow jobs to open the devices in their /dev and terminals, and no other device that might appear. On
// hosts with cgroup v1's devices controller this is a second barrier; on v2 it is a BPF program with the same rules.
func deviceRules() []*devices.Rule {
	list := []*devices.Rule{{Type: devices.WildcardDevice, Major: devices.Wildcard, Minor: devices.Wildcard, Permissions: "rwm"}}
	allow := func(major, minor int64) {
		list = append(list, &devices.Rule{Type: devices.CharDevice, Major: major, Minor: minor, Permissions: "rw", Allow: true})
	}
	for _, d := range rootfs.Devices {
		allow(int64(d.Major), int64(d.Minor))
	}
	const ptmx, terminal = 2, 136
	allow(5, ptmx)
	allow(terminal, devices.Wildcard)
	return list
}

func (j *Jail) mounts(dir string, tree rootfs.Tree) []*configs.Mount {
	readOnly := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	// The jail's own /proc stays unmasked, because otherwise the kernel would refuse to mount a new one for a job
	// (mount_too_revealing). Jobs never see it: theirs is mounted over it.
	list := []*configs.Mount{
		{Device: "proc", Source: "proc", Destination: "/proc", Flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{
			Device: "bind", Source: filepath.Join(dir, "dev"), Destination: "/dev",
			Flags: unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NOEXEC,
		},
	}
	for _, b := range tree.Binds {
		list = append(list, &configs.Mount{
			Device: "bind", Source: b.Source, Destination: b.Target,
			Flags:   unix.MS_BIND | unix.MS_REC | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV,
			RecAttr: readOnly,
		})
	}
	return list
}
