package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Need checks a requirement of a test: it returns why the machine does not meet it, or nil.
type Need func() error

// otherMachine is the error of a need that no installation on this machine could meet: the test is for another kind of
// machine.
type otherMachine string

func (o otherMachine) Error() string { return string(o) }

// A machineNeed is the error in the unit phase of a need that unit tests must not have.
type machineNeed string

func (m machineNeed) Error() string { return "not a unit test: needs " + string(m) }

// machine is called first by each need that unit tests must not have: in the unit phase, such a need is not met on any
// machine.
func machine(what string) error {
	if os.Getenv("CORRAL_TEST_PHASE") == "unit" {
		return machineNeed(what)
	}
	return nil
}

// Root requires user 0 with the capability to mount, as corrald has.
func Root() error {
	if err := machine("root"); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("not root")
	}
	// Root in a container may lack the capability.
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(status), "\nCapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	if caps, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64); err != nil || caps&(1<<unix.CAP_SYS_ADMIN) == 0 {
		return errors.New("root without CAP_SYS_ADMIN")
	}
	return nil
}

// OwnMachine requires that no other process sees the mounts of the test, so that it may mount over directories of the system.
func OwnMachine() error {
	if err := machine("a mount namespace"); err != nil {
		return err
	}
	if os.Getenv("CORRAL_TEST_MACHINE") != "own" {
		return otherMachine("not a machine for this test: run it by make test")
	}
	return nil
}

// SysResource requires CAP_SYS_RESOURCE, which root lacks in some virtual machines and containers.
func SysResource() error {
	if err := Root(); err != nil {
		return err
	}
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(status), "\nCapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	if caps, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64); err != nil || caps&(1<<unix.CAP_SYS_RESOURCE) == 0 {
		return otherMachine("root without CAP_SYS_RESOURCE")
	}
	return nil
}

// Cgroups requires a hierarchy of any version with the controllers that limit a job.
func Cgroups() error {
	if err := machine("cgroups"); err != nil {
		return err
	}
	if CgroupV2() == nil {
		return nil
	}
	for _, controller := range []string{"memory", "cpu", "pids"} {
		if !slices.ContainsFunc(cgroupMounts(), func(m mount) bool {
			return m.fsType == "cgroup" && slices.Contains(strings.Split(m.options, ","), controller)
		}) {
			return errors.New("no cgroup controller " + controller)
		}
	}
	return nil
}

// CgroupV2 requires the controllers that limit a job in the v2 hierarchy. On a hybrid machine that hierarchy has none.
func CgroupV2() error {
	if err := machine("cgroups"); err != nil {
		return err
	}
	dir := Unified()
	if dir == "" {
		return otherMachine("no cgroup v2 mounted")
	}
	file := filepath.Join(dir, "cgroup.controllers")
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, controller := range []string{"memory", "cpu", "pids"} {
		if !slices.Contains(strings.Fields(string(b)), controller) {
			return otherMachine("no cgroup v2 controller " + controller + " in " + file)
		}
	}
	return nil
}

// CgroupV1 is a hierarchy whose limits are those of v1: what CgroupV2 is not.
func CgroupV1() error {
	if err := machine("cgroups"); err != nil {
		return err
	}
	if CgroupV2() == nil {
		return otherMachine("cgroup v2 only")
	}
	return Cgroups()
}

// CgroupKill is cgroup.kill, in a pure or a hybrid hierarchy: Linux 5.14.
func CgroupKill() error {
	if err := machine("cgroups"); err != nil {
		return err
	}
	dir := Unified()
	if dir == "" {
		return errors.New("no cgroup v2 mounted")
	}
	// The root has no such file, so it takes a child to see it.
	child, err := os.MkdirTemp(dir, "sandboxtest-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(child) }() // an empty cgroup can be removed
	if _, err := os.Stat(filepath.Join(child, "cgroup.kill")); err != nil {
		return err
	}
	return nil
}

// UserNamespaces requires that the caller can create user namespaces.
func UserNamespaces() error {
	if err := machine("user namespaces"); err != nil {
		return err
	}
	if _, err := os.Stat("/proc/self/ns/user"); err != nil {
		return err
	}
	b, err := os.ReadFile("/proc/sys/user/max_user_namespaces")
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(b)) == "0" {
		return errors.New("user.max_user_namespaces is 0")
	}
	return nil
}

// Landlock requires a kernel with Landlock enabled, of any version.
func Landlock() error { return LandlockABI(1)() }

// LandlockABI requires at least that version of the Landlock ABI, as numbered in landlock(7).
func LandlockABI(want int) Need {
	return func() error {
		if err := machine("Landlock"); err != nil {
			return err
		}
		got, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
		if errno != 0 {
			return fmt.Errorf("no Landlock: %w", errno)
		}
		if int(got) < want {
			return otherMachine(fmt.Sprintf("Landlock ABI %d, not %d", got, want))
		}
		return nil
	}
}

// FileSystem requires a type of file system, as listed in /proc/filesystems, for example "overlay".
func FileSystem(name string) Need {
	return func() error {
		if err := machine("the file system " + name); err != nil {
			return err
		}
		b, err := os.ReadFile("/proc/filesystems")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 0 && f[len(f)-1] == name {
				return nil
			}
		}
		return errors.New("no file system " + name)
	}
}

// Kernel requires at least that release of Linux.
func Kernel(major, minor int) Need {
	return func() error {
		if err := machine("a release of the kernel"); err != nil {
			return err
		}
		var u unix.Utsname
		if err := unix.Uname(&u); err != nil {
			return err
		}
		release := unix.ByteSliceToString(u.Release[:])
		var gotMajor, gotMinor int
		if _, err := fmt.Sscanf(release, "%d.%d", &gotMajor, &gotMinor); err != nil {
			return fmt.Errorf("uname: %s: %w", release, err)
		}
		if gotMajor < major || gotMajor == major && gotMinor < minor {
			return otherMachine(fmt.Sprintf("Linux %d.%d, not %s", major, minor, release))
		}
		return nil
	}
}

// Installable requires a machine with systemd that exists only for one run of tests, so that corral may be installed and
// changed on it.
func Installable() error {
	if err := machine("a machine to install corral on"); err != nil {
		return err
	}
	if os.Getenv("CORRAL_TEST_INSTALL") != "1" {
		return otherMachine("corral is installed in the guest only")
	}
	return nil
}

// Timely requires a machine that is not emulated, so that programs on terminals react as fast as other programs expect.
func Timely() error {
	if n := slowness(); n > 1 {
		return otherMachine(fmt.Sprintf("a machine that is about %d times slower than others", n))
	}
	return nil
}

// Program requires a program in PATH. If it is missing but named in CORRAL_LACKS, the test is for another kind of machine.
func Program(name string) Need {
	return func() error {
		_, err := exec.LookPath(name)
		if err != nil && slices.Contains(strings.Fields(os.Getenv("CORRAL_LACKS")), name) {
			return otherMachine(err.Error())
		}
		return err
	}
}

// Postgres requires a server of PostgreSQL, which Debian installs outside of PATH.
func Postgres() error {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	switch {
	case err != nil || len(found) > 0:
		return err
	case slices.Contains(strings.Fields(os.Getenv("CORRAL_LACKS")), "postgres"):
		return otherMachine("this machine has no PostgreSQL")
	}
	return errors.New("PostgreSQL is not installed")
}

// PostgresServer is a line of shell that starts PostgreSQL on new files in the home directory of a job, at port 5432.
const PostgresServer = `bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
$bin/initdb -D ~/db -A trust -U ada --no-sync >/dev/null
exec $bin/postgres -D ~/db -p 5432 -c listen_addresses=127.0.0.1 -c unix_socket_directories=`

// A mount is one line of proc_pid_mountinfo(5).
type mount struct {
	id, point, fsType, options string
}

// mounts returns the mounts of the caller's mount namespace.
func mounts() ([]mount, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var all []mount
	for line := range strings.Lines(string(b)) {
		// 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
		before, after, _ := strings.Cut(line, " - ")
		head, tail := strings.Fields(before), strings.Fields(after)
		if len(head) >= 5 && len(tail) >= 3 {
			all = append(all, mount{id: head[0], point: head[4], fsType: tail[0], options: tail[2]})
		}
	}
	return all, nil
}

// cgroupMounts returns the mounts of cgroup hierarchies, or none if mountinfo cannot be read.
func cgroupMounts() []mount {
	all, err := mounts()
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(m mount) bool { return m.fsType != "cgroup" && m.fsType != "cgroup2" })
}

// Unified returns the mount point of the v2 hierarchy, or "".
func Unified() string {
	for _, m := range cgroupMounts() {
		if m.fsType == "cgroup2" {
			return m.point
		}
	}
	return ""
}
