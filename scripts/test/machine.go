package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A test process that runs as root has a machine of its own, as far as tests examine one:
//
//	processes   a PID namespace; a process that is left at the end is a failure
//	mounts      a mount namespace; a mount that is left at the end is a failure
//	cgroups     a group of its own in each hierarchy, and a cgroup namespace in which these groups are the roots; a
//	            group that is left below /corral is a failure
//	IPC         a namespace, and a /dev/shm
//	corral      /etc/corral, /run/corral, /var/lib/corral and the home directory are its own
//
// The last line are the directories of an installed corral; here they belong to a hostile one, see hostile.go. The network,
// /tmp and user ids are the host's. Two test processes may give the same host user ids to their jobs, because each has a
// /run/corral. That is harmless: signals do not reach from one to the other, and the kernel's quotas per user are large
// compared with what one test uses.
//
// Two processes start a test process: `enter`, on the host, makes the cgroups and removes them; `inside`, process 1 of
// the new namespaces, makes the mounts, reaps orphans, and looks for leftovers.

const (
	enterCommand  = "enter-machine"
	insideCommand = "inside-machine"

	// leafGroup holds the processes of the test. In the v2 hierarchy a group with controllers for its children must have
	// no process of its own (cgroups(7)), and the root of the namespace must be such a group.
	leafGroup = "tests"

	cgroupRoot = "/sys/fs/cgroup"
)

// endSignals returns the signals that end a run: those of a terminal, also of one that is closed, and of whoever started it.
// One that the run was started to ignore, as by nohup(1), is left out.
func endSignals() []os.Signal {
	return slices.DeleteFunc([]os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM}, signal.Ignored)
}

// ownDirs are the directories of an installed corral. They must exist so that others can be mounted on them.
var ownDirs = []string{"/etc/corral", "/run/corral", "/var/lib/corral"}

// ownDirsLock is held shared by each run. Removing a directory unmounts it in all namespaces, also in those of the test
// processes of another run.
const ownDirsLock = "/run/corral-test-machines.lock"

// makeOwnDirs makes the directories on which test processes mount their own, and removes what killed runs have left. The
// returned function removes the directories that it made, unless another run needs them.
func makeOwnDirs() (remove func(), err error) {
	lock, err := os.OpenFile(ownDirsLock, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil { // there is no other run
		if err := removeAbandoned(); err != nil {
			return nil, errors.Join(err, lock.Close())
		}
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_SH); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	made, err := mkdirs()
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return func() {
		defer lock.Close()
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			for _, dir := range made {
				_ = os.Remove(dir) // what is not empty is in use
			}
		}
	}, nil
}

// mkdirs makes the directories of ownDirs that are missing, and returns them.
func mkdirs() (made []string, err error) {
	for _, dir := range ownDirs {
		if err := os.Mkdir(dir, 0o755); err == nil {
			made = append(made, dir)
		} else if !errors.Is(err, fs.ErrExist) {
			return made, err
		}
	}
	return made, nil
}

// A hierarchy is a mounted cgroup hierarchy.
type hierarchy struct {
	point, fsType, options string // as mounted; options are the controllers of v1
	group                  string // directory on the host that is the root of the test's namespace
}

// hierarchies reads proc_pid_mountinfo(5) and cgroups(7)'s /proc/self/cgroup.
func hierarchies(name string) ([]hierarchy, error) {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	var list []hierarchy
	for line := range strings.Lines(string(mountinfo)) {
		before, after, _ := strings.Cut(line, " - ")
		head, tail := strings.Fields(before), strings.Fields(after)
		if len(head) < 5 || len(tail) < 3 || tail[0] != "cgroup" && tail[0] != "cgroup2" {
			continue
		}
		h := hierarchy{point: head[4], fsType: tail[0], options: v1Options(tail[2])}
		own := ownGroup(string(self), h)
		if h.fsType == "cgroup2" && hasController(h.point) {
			// Its groups need controllers, which our own group cannot pass on while it has processes.
			own = "/"
		}
		h.group = filepath.Join(h.point, own, name)
		list = append(list, h)
	}
	return list, nil
}

// v1Options returns the mount options of a v1 hierarchy that identify it.
func v1Options(all string) string {
	var list []string
	for o := range strings.SplitSeq(all, ",") {
		switch o {
		case "rw", "ro", "xattr", "clone_children", "nsdelegate", "memory_recursiveprot":
		default:
			if strings.HasPrefix(o, "name=") {
				list = append(list, "none")
			}
			list = append(list, o)
		}
	}
	return strings.Join(list, ",")
}

// ownGroup returns the group of this process, from lines such as "4:memory:/a/b", "1:name=systemd:/", "0::/".
func ownGroup(self string, h hierarchy) string {
	want := strings.TrimPrefix(h.options, "none,")
	for line := range strings.Lines(self) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && (h.fsType == "cgroup2" && f[1] == "" || h.fsType == "cgroup" && f[1] == want) {
			return f[2]
		}
	}
	return "/"
}

func hasController(point string) bool {
	b, _ := os.ReadFile(filepath.Join(point, "cgroup.controllers"))
	return slices.Contains(strings.Fields(string(b)), "memory")
}

// enter runs a command in a machine of its own and returns its exit code: enter-machine DIRECTORY COMMAND [ARGUMENT]...
// DIRECTORY is for the files of the machine; the caller removes it.
func enter(args []string) int {
	if len(args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: enter-machine DIRECTORY COMMAND [ARGUMENT]...")
		return 2
	}
	code, err := enterMachine(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test machine:", err)
		return 1
	}
	return code
}

func enterMachine(args []string) (code int, err error) {
	groups, err := hierarchies(fmt.Sprintf("%s%d", machineGroup, os.Getpid()))
	if err != nil {
		return 0, err
	}
	for _, h := range groups {
		if err := h.make(); err != nil {
			return 0, errors.Join(err, removeGroups(groups))
		}
	}
	defer func() {
		err = errors.Join(err, removeGroups(groups))
	}()

	if _, err := mkdirs(); err != nil { // an installation may have been removed meanwhile
		return 0, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer w.Close()
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, append([]string{insideCommand}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{r}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC,
		Pdeathsig:  unix.SIGKILL, // ends everything in the PID namespace
	}
	runtime.LockOSThread() // the signal comes when the thread ends that started the process, see prctl(2)
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	r.Close()
	// The end of a run ends the machine but not this process, which still has to remove the groups.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, endSignals()...)
	go func() {
		<-signals
		_ = cmd.Process.Kill()
	}()
	for _, h := range groups {
		if err := h.join(cmd.Process.Pid, ""); err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return 0, err
		}
	}
	if _, err := w.Write([]byte{1}); err != nil {
		return 0, err
	}
	err = cmd.Wait()
	if cmd.ProcessState == nil {
		return 0, err
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// make makes the group, and in it a group for the processes of the test.
func (h hierarchy) make() error {
	if h.fsType == "cgroup2" && hasController(h.point) {
		if err := os.WriteFile(filepath.Join(h.point, "cgroup.subtree_control"), []byte("+cpu +memory +pids"), 0); err != nil {
			return err
		}
	}
	if err := os.Mkdir(h.group, 0o755); err != nil {
		return err
	}
	if err := h.adoptCPUs(h.group); err != nil {
		return err
	}
	leaf := filepath.Join(h.group, leafGroup)
	if err := os.Mkdir(leaf, 0o755); err != nil {
		return err
	}
	return h.adoptCPUs(leaf)
}

// adoptCPUs gives a new group of v1's cpuset the processors of its parent: without processors it accepts no process.
func (h hierarchy) adoptCPUs(dir string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		if h.fsType != "cgroup" || !slices.Contains(strings.Split(h.options, ","), "cpuset") {
			return nil
		}
		b, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// join moves a process into the group, or into one below it.
func (h hierarchy) join(pid int, below string) error {
	return os.WriteFile(filepath.Join(h.group, below, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// removeGroups removes the remaining groups once their processes have ended.
func removeGroups(groups []hierarchy) error {
	var err error
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err = nil
		for _, h := range groups {
			err = errors.Join(err, removeGroup(h.group))
		}
		if err == nil || time.Now().After(end) { // the kernel empties a group some time after its last process has gone
			return err
		}
	}
}

func removeGroup(dir string) error {
	var dirs []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil // a group that goes away meanwhile is as good as removed
	})
	slices.Reverse(dirs)
	for _, d := range dirs {
		if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// inside is process 1 of the machine: inside-machine DIRECTORY COMMAND [ARGUMENT]...
func inside(args []string) int {
	// The first thread must call unshare(2) and start the command, because /proc/self refers to it.
	runtime.LockOSThread()
	if _, err := os.NewFile(3, "start").Read(make([]byte, 1)); err != nil {
		return 1 // enter has ended before all was ready
	}
	m, err := newMachine(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, "test machine:", err)
		return 1
	}
	return m.run(args[1:])
}

// A machine is the environment of a test process.
type machine struct {
	dir    string
	mounts map[string]bool // ids of those that are there before the test
}

func newMachine(dir string) (*machine, error) {
	m := &machine{dir: dir}
	groups, err := hierarchies("")
	if err != nil {
		return nil, err
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return nil, fmt.Errorf("unshare the cgroup namespace: %w", err)
	}
	if err := m.mountAll(groups); err != nil {
		return nil, err
	}
	for _, h := range groups {
		h.group = h.point // the root of the namespace now
		if err := h.join(os.Getpid(), leafGroup); err != nil {
			return nil, err
		}
	}
	if err := m.becomeHostile(); err != nil {
		return nil, err
	}
	m.mounts = mountIDs()
	return m, nil
}

func (m *machine) mountAll(groups []hierarchy) error {
	type mount struct {
		source, point, fsType string
		flags                 uintptr
		options               string
	}
	list := []mount{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE, ""},
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"shm", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"config", "/etc/corral", "tmpfs", 0, "mode=0755"},
		{"run", "/run/corral", "tmpfs", 0, "mode=0755"},
	}
	for _, mm := range list {
		if err := unix.Mount(mm.source, mm.point, mm.fsType, mm.flags, mm.options); err != nil {
			return fmt.Errorf("mount %s: %w", mm.point, err)
		}
	}
	state := filepath.Join(m.dir, "state")
	if err := os.Mkdir(state, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(state, "/var/lib/corral", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount /var/lib/corral: %w", err)
	}
	if len(groups) == 0 {
		return nil
	}
	// Not on top of the old ones: a reader of the list of mounts would find those first.
	for i := len(groups) - 1; i >= 0; i-- {
		if err := unix.Unmount(groups[i].point, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", groups[i].point, err)
		}
	}
	for _, h := range groups {
		source, options := "cgroup", h.options
		if h.fsType == "cgroup2" {
			source, options = "cgroup2", ""
		}
		if err := unix.Mount(source, h.point, h.fsType, 0, options); err != nil {
			return fmt.Errorf("mount %s: %w", h.point, err)
		}
	}
	return nil
}

// run runs the command, reaps orphans, and looks for leftovers of the command.
func (m *machine) run(args []string) int {
	home := filepath.Join(m.dir, "home")
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "HOME" || strings.HasPrefix(name, "XDG_")
	})
	process, err := os.StartProcess(args[0], args, &os.ProcAttr{
		Env: append(env, "HOME="+home, "CORRAL_TEST_MACHINE=own"), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "test machine:", err)
		return 1
	}
	var code int
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "test machine: wait:", err)
			return 1
		}
		if pid != process.Pid {
			continue
		}
		code = status.ExitStatus()
		if status.Signaled() {
			fmt.Fprintln(os.Stderr, "test machine: the test process was ended by signal", status.Signal())
			code = 128 + int(status.Signal())
		}
		break
	}
	for _, what := range m.leftovers() {
		fmt.Println("left on the machine:", what) //nolint:forbidigo // the output of a test process is its standard output
		code = max(code, 1)
	}
	return code
}

// leftovers returns what the test left behind and what is still there after two seconds. These are counted in looks: on a machine that
// stands still for a while, what ends needs as much longer as this process.
func (m *machine) leftovers() []string {
	const pause = 10 * time.Millisecond
	for looks := 2 * time.Second / pause; ; looks-- {
		for {
			if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
		left := slices.Concat(leftProcesses(), m.leftMounts(), leftGroups(), leftInstances())
		if len(left) == 0 || looks == 0 {
			return left
		}
		time.Sleep(pause)
	}
}

func leftProcesses() []string {
	var left []string
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != 1 {
			line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
			left = append(left, fmt.Sprintf("process %d: %.200q", pid, line))
		}
	}
	return left
}

func mountIDs() map[string]bool {
	ids := map[string]bool{}
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		id, _, _ := strings.Cut(line, " ")
		ids[id] = true
	}
	return ids
}

func (m *machine) leftMounts() []string {
	var left []string
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		if id, _, _ := strings.Cut(line, " "); !m.mounts[id] {
			left = append(left, "mount: "+strings.TrimSpace(line))
		}
	}
	return left
}

// leftGroups returns the cgroups of supervisors. /corral itself stays after a supervisor has ended.
func leftGroups() []string {
	var left []string
	for _, pattern := range []string{"/corral*/*", "/*/corral*/*", "/*/*/corral*/*"} {
		found, _ := filepath.Glob(cgroupRoot + pattern)
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				left = append(left, "cgroup: "+path)
			}
		}
	}
	return left
}

func leftInstances() []string {
	found, _ := filepath.Glob("/run/corral/instances/*")
	for i := range found {
		found[i] = "instance: " + found[i]
	}
	return found
}
