package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"corral/rootfs"
)

// toolchains are the directories that the operator shows in every jail, held since the supervisor was made: each is
// mounted at a place of the supervisor's own, from the descriptor that it was checked by. Jails are given that place. By
// its path, a directory is whatever those who own one above it have made of it at the moment: a link, to anywhere.
type toolchains struct {
	dir  string
	next int             // name of the next mount point in dir
	held map[string]held // by path
}

// held is a directory, and where it is mounted.
type held struct {
	inode
	source string
}

// holdToolchains mounts the toolchains in a directory of its own below dir, and leaves in c.Toolchains those that it
// could. The caller must close them, before dir is removed.
func (c *Config) holdToolchains(dir string) (*toolchains, error) {
	t := &toolchains{dir: filepath.Join(dir, "toolchains"), held: map[string]held{}}
	if len(c.Toolchains)+len(c.Shown) == 0 {
		return t, nil
	}
	if err := c.openShown(); err != nil {
		return nil, err
	}
	if err := makeDir(t.dir); err != nil {
		return nil, err
	}
	err := t.holdAll(slices.Concat(c.Toolchains, c.Shown))
	if err != nil { // one at a time takes longer
		c.Toolchains = c.showable()
		err = t.holdAll(slices.Concat(c.Toolchains, c.Shown))
	}
	c.Toolchains = slices.Concat(c.Toolchains, c.Shown)
	return t, err
}

// showable returns those of the toolchains that can be shown now, and logs the others: what the operator names may lie in a
// user's directory, and be replaced by that user, who is not to keep the supervisor from starting.
func (c *Config) showable() []string {
	var list []string
	for _, path := range c.Toolchains {
		if _, err := rootfs.Host(rootfs.Options{Toolchains: []string{path}}); err != nil {
			c.Log.Warn("toolchain not shown", "toolchain", path, "reason", err)
			continue
		}
		list = append(list, path)
	}
	return list
}

// holdAll holds all of the toolchains, or none.
func (t *toolchains) holdAll(paths []string) error {
	// What a jail refuses, and what it has no need of, is told here as there.
	_, err := rootfs.Host(rootfs.Options{Toolchains: paths, Hold: t.hold})
	if err != nil {
		return errors.Join(err, t.close())
	}
	return nil
}

// hold mounts the directory that dir is a descriptor of: what the host has mounted below it is not in it, and what it
// mounts there later does not come.
func (t *toolchains) hold(path string, dir int) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return "", fmt.Errorf("stat: %w", err)
	}
	fd, err := unix.OpenTree(dir, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return "", fmt.Errorf("open_tree: %w", err)
	}
	defer unix.Close(fd)
	attr := unix.MountAttr{
		Attr_set:    unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Propagation: unix.MS_PRIVATE,
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return "", fmt.Errorf("mount_setattr: %w", err)
	}
	source := filepath.Join(t.dir, strconv.Itoa(t.next))
	t.next++
	if err := makeDir(source); err != nil {
		return "", err
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, source, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return "", fmt.Errorf("move_mount: %w", err)
	}
	t.held[path] = held{inode{st.Dev, st.Ino}, source}
	return source, nil
}

// source returns where a directory is mounted, if it is the one that is held.
func (t *toolchains) source(path string, dir int) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return "", fmt.Errorf("stat: %w", err)
	}
	h, ok := t.held[path]
	if !ok || h.inode != (inode{st.Dev, st.Ino}) {
		return "", errReplaced
	}
	return h.source, nil
}

var errReplaced = errors.New("it is another directory than when the supervisor was started (hint: restart it to show the new one)")

// close unmounts them.
func (t *toolchains) close() error {
	var all []error
	for path, h := range t.held {
		if err := unix.Unmount(h.source, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			all = append(all, &os.PathError{Op: "umount toolchain", Path: path, Err: err})
		}
	}
	clear(t.held)
	return errors.Join(all...)
}
