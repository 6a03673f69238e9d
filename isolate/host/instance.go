package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"corral/cgroup"
	"corral/internal/lazyregexp"
)

// An Instance is the state of a supervisor on the host, all of which can be found by name after a kill:
//
//	RunDir/lock                  held while an instance is created or cleared
//	RunDir/apply                 locked while changes are applied to a repository, see LockApply
//	RunDir/uids/N                the blocks of user ids in use, see uidPool
//	RunDir/instances/NAME/lock   held while the instance is running
//	RunDir/instances/NAME/jails  mount points and libcontainer's state
//	RunDir/instances/NAME/toolchains  mount points, see toolchains
//	…/corral/NAME in the cgroup hierarchies, see cgroup.Tree
//
// Mounts are in the supervisor's own mount namespace and end with it.
type Instance struct {
	Name   string
	Dir    string
	uids   *uidPool
	Tree   *cgroup.Tree
	Groups *cgroup.Instance
	unlock func()

	sequence atomic.Uint64 // last number used by unique
}

// Unique returns a name that begins with prefix and is unique within this instance.
func (i *Instance) Unique(prefix string) string {
	return prefix + strconv.FormatUint(i.sequence.Add(1), 10)
}

// NobodyID returns a host user and group id that no job of this machine ever has. The next one has none either.
func (i *Instance) NobodyID() uint32 { return i.uids.base }

// MayBeJob reports whether a host user id is one that jobs can have.
func (i *Instance) MayBeJob(uid uint32) bool {
	return uid-i.uids.base >= uidBlock && uid-i.uids.base < i.uids.size
}

// TakeUIDs allocates a block of host user ids to the instance and returns its first id: that of the root of a jail,
// which the JobUIDs ids of the jail's jobs follow.
func (i *Instance) TakeUIDs() (uint32, error) { return i.uids.take(i.Name) }

// ReleaseUIDs releases the block that begins at first. No process may have one of its ids.
func (i *Instance) ReleaseUIDs(first uint32) { i.uids.release(first) }

// OpenInstance clears the instances whose supervisor is gone, then creates and locks the instance of this name. Its
// jails get user ids of the range that begins at uidBase. The caller must call close.
func OpenInstance(name string, uidBase, uidSize uint32) (*Instance, error) {
	if err := checkRunDir(RunDir); err != nil {
		return nil, err
	}
	tree, err := cgroup.Detect()
	if err != nil {
		return nil, err
	}
	i := &Instance{
		Name: name,
		Dir:  filepath.Join(instancesDir, name),
		uids: &uidPool{dir: filepath.Join(RunDir, "uids"), base: uidBase, size: uidSize},
		Tree: tree,
	}
	unlock, err := LockInstances()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := i.recover(instancesDir); err != nil {
		return nil, err
	}
	var u Cleanup
	defer u.Run()
	for _, dir := range []string{i.Dir, filepath.Join(i.Dir, "jails")} {
		if err := MakeDir(dir); err != nil && !errors.Is(err, os.ErrExist) { // if it belongs to a running instance, locking fails below
			return nil, err
		}
	}
	i.unlock, err = lockFile(filepath.Join(i.Dir, "lock"), false)
	if err != nil {
		return nil, fmt.Errorf("another supervisor is instance %q: %w", name, err)
	}
	u.Push(i.unlock)
	i.Groups, err = tree.Instance(name)
	if err != nil {
		return nil, err
	}
	u.Cancel()
	return i, nil
}

// checkRunDir creates dir, or refuses one that is not writable by root alone: names in it decide what is cleared.
func checkRunDir(dir string) error {
	for _, d := range []string{dir, filepath.Join(dir, "instances")} {
		if err := MakeDir(d); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(d, &st); err != nil {
			return fmt.Errorf("%s: %w", d, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != 0 || st.Mode&0o022 != 0 {
			return fmt.Errorf("%s must be a directory of root that no other user can write", d)
		}
	}
	return nil
}

// recover clears what instances left whose lock is free, because their supervisor was killed. Running instances are
// not touched. The caller holds RunDir/lock, so no instance is half created.
func (i *Instance) recover(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	live := map[string]bool{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		unlock, err := lockFile(filepath.Join(path, "lock"), false)
		if errors.Is(err, unix.EWOULDBLOCK) {
			live[e.Name()] = true
			continue
		}
		if err != nil {
			return err
		}
		err = i.clear(e.Name(), path)
		unlock()
		if errors.Is(err, cgroup.ErrUnkillable) {
			// It keeps what it has, including its user ids, until a later start finds its processes gone.
			live[e.Name()] = true
			continue
		}
		if err != nil {
			return fmt.Errorf("clear the state that instance %q left behind: %w", e.Name(), err)
		}
	}
	return i.sweepUnknown(live)
}

// sweepUnknown clears cgroups of instances whose directory was removed by hand.
func (i *Instance) sweepUnknown(live map[string]bool) error {
	names, err := i.Tree.Instances()
	if err != nil {
		return err
	}
	for _, name := range names {
		if !live[name] {
			if err := i.Tree.Sweep(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// clear removes an instance: processes and cgroups first, then its user ids, then its directory. Everything in the
// directory was created by us under names of ours; no job could write there.
func (i *Instance) clear(name, path string) error {
	if err := i.Tree.Sweep(name); err != nil {
		return err
	}
	if err := i.uids.releaseAll(name); err != nil {
		return err
	}
	return RemoveAll(path)
}

// Close clears the instance. It holds RunDir/lock meanwhile, as a starting supervisor does, so no other supervisor
// sees a half-cleared instance.
func (i *Instance) Close() error {
	unlock, err := LockInstances()
	if err != nil {
		return err
	}
	defer unlock()
	defer i.unlock()
	defer i.Groups.Close()
	return i.clear(i.Name, i.Dir)
}

// OnlyInstance reports whether no other supervisor is running on this machine, whose jobs could pass descriptors to
// ours. It uses the directory's link count, which includes its subdirectories. A killed instance that was not cleared
// yet counts as running, and on file systems that do not count links the result is false.
func OnlyInstance() bool {
	const itself = 2
	var st unix.Stat_t
	return unix.Stat(instancesDir, &st) == nil && st.Nlink == itself+1
}

// instancesDir has one directory per supervisor.
const instancesDir = RunDir + "/instances"

// RunDir holds the state of all running supervisors of the machine. It is fixed, because user ids are allocated and
// killed instances are cleared machine-wide.
const RunDir = "/run/corral"

// CheckInstance refuses a name that an instance cannot have.
func CheckInstance(name string) error {
	if !validInstance(name) || slices.Contains(reservedNames, name) {
		return fmt.Errorf("invalid instance name %q: use lower-case letters, digits and dashes, at most %d characters, and none of %s",
			name, maxInstance, strings.Join(reservedNames, ", "))
	}
	return nil
}

// Running reports whether the instance of this name is running, that is, whether its lock is held.
func Running(name string) bool {
	if !validInstance(name) {
		return false
	}
	f, err := os.OpenFile(filepath.Join(instancesDir, name, "lock"), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// LockInstances waits until no supervisor of the machine is being created or cleared, and prevents it until unlock is
// called.
func LockInstances() (unlock func(), err error) {
	return lockFile(filepath.Join(RunDir, "lock"), true)
}

// reservedNames are cgroup file and group names of ours that an instance cannot have.
var reservedNames = []string{"init", "supervisor", "tasks"}

// maxInstance is the maximum length of the name of an instance. Each supervisor checks its name at its start: with the length in
// the expression, compiling it would take ten times as long.
const maxInstance = 32

var instanceName = lazyregexp.New(`^[a-z0-9][a-z0-9-]*$`)

func validInstance(name string) bool {
	return len(name) <= maxInstance && instanceName().MatchString(name)
}
