package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"corral/cgroup"
)

// The state of an instance on the host, all of which can be found by name after a kill:
//
//	RunDir/lock                  held while an instance is created or cleared
//	RunDir/uids/N                the blocks of user ids in use, see uidPool
//	RunDir/instances/NAME/lock   held while the instance is running
//	RunDir/instances/NAME/jails  mount points and libcontainer's state
//	RunDir/instances/NAME/toolchains  mount points, see toolchains
//	…/corral/NAME in the cgroup hierarchies, see cgroup.Tree
//
// Mounts are in the supervisor's own mount namespace and end with it.
type instance struct {
	name   string
	dir    string
	uids   *uidPool
	tree   *cgroup.Tree
	groups *cgroup.Instance
	unlock func()
}

// openInstance clears the instances whose supervisor is gone, then creates and locks this one.
func openInstance(c Config) (*instance, error) {
	if err := checkRunDir(RunDir); err != nil {
		return nil, err
	}
	tree, err := cgroup.Detect()
	if err != nil {
		return nil, err
	}
	i := &instance{
		name: c.Instance,
		dir:  filepath.Join(instancesDir, c.Instance),
		uids: &uidPool{dir: filepath.Join(RunDir, "uids"), base: c.UIDBase, size: c.UIDSize},
		tree: tree,
	}
	unlock, err := lockFile(filepath.Join(RunDir, "lock"), true)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := i.recover(instancesDir); err != nil {
		return nil, err
	}
	var u cleanup
	defer u.run()
	for _, dir := range []string{i.dir, filepath.Join(i.dir, "jails")} {
		if err := makeDir(dir); err != nil && !errors.Is(err, os.ErrExist) { // if it belongs to a running instance, locking fails below
			return nil, err
		}
	}
	i.unlock, err = lockFile(filepath.Join(i.dir, "lock"), false)
	if err != nil {
		return nil, fmt.Errorf("another supervisor is instance %q: %w", c.Instance, err)
	}
	u.push(i.unlock)
	i.groups, err = tree.Instance(c.Instance)
	if err != nil {
		return nil, err
	}
	u.cancel()
	return i, nil
}

// checkRunDir creates dir, or refuses one that is not writable by root alone: names in it decide what is cleared.
func checkRunDir(dir string) error {
	for _, d := range []string{dir, filepath.Join(dir, "instances")} {
		if err := makeDir(d); err != nil && !errors.Is(err, os.ErrExist) {
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
func (i *instance) recover(dir string) error {
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
func (i *instance) sweepUnknown(live map[string]bool) error {
	names, err := i.tree.Instances()
	if err != nil {
		return err
	}
	for _, name := range names {
		if !live[name] {
			if err := i.tree.Sweep(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// clear removes an instance: processes and cgroups first, then its user ids, then its directory. Everything in the
// directory was created by us under names of ours; no job could write there.
func (i *instance) clear(name, path string) error {
	if err := i.tree.Sweep(name); err != nil {
		return err
	}
	if err := i.uids.releaseAll(name); err != nil {
		return err
	}
	return removeAll(path)
}

// removeAll removes a directory of ours. It retries for up to a second while mounts in it are still being removed
// with their mount namespace.
func removeAll(path string) error {
	var err error
	for wait := time.Millisecond; wait < time.Second; wait *= 2 {
		if err = os.RemoveAll(path); err == nil || !errors.Is(err, unix.EBUSY) {
			return err
		}
		time.Sleep(wait)
	}
	return err
}

// close clears the instance. It holds RunDir/lock meanwhile, as a starting supervisor does, so no other supervisor
// sees a half-cleared instance.
func (i *instance) close() error {
	unlock, err := lockFile(filepath.Join(RunDir, "lock"), true)
	if err != nil {
		return err
	}
	defer unlock()
	defer i.unlock()
	return i.clear(i.name, i.dir)
}
