package host

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/rootfs"
)

// Toolchains are the directories that the operator shows in every jail, held since the supervisor was created. Each
// is mounted at a path of the supervisor's own, from the descriptor by which it was checked, and jails use that path.
// The original path leads wherever the owners of its parent directories let it lead at the time, possibly through a
// link to any directory.
type Toolchains struct {
	Paths []string // original paths
	dir   string
	next  int                      // name of the next mount point
	held  map[string]heldToolchain // by original path
}

// A heldToolchain is a directory and its mount point.
type heldToolchain struct {
	Inode
	source string
}

// HoldToolchains mounts the toolchains in a directory of its own below dir, and leaves out those of configured that it
// cannot mount. shown are those that an embedded supervisor's command line names: each must be usable, with the rights
// of account. The caller must call close before dir is removed.
func HoldToolchains(dir string, configured, shown []string, account *directory.Account, log *slog.Logger) (*Toolchains, error) {
	t := &Toolchains{dir: filepath.Join(dir, "toolchains"), held: map[string]heldToolchain{}}
	if len(configured)+len(shown) == 0 {
		return t, nil
	}
	shown, err := openShown(configured, shown, account)
	if err != nil {
		return nil, err
	}
	if err := MakeDir(t.dir); err != nil {
		return nil, err
	}
	err = t.holdAll(slices.Concat(configured, shown))
	if err != nil { // find out which; one at a time takes longer
		configured = showable(configured, log)
		err = t.holdAll(slices.Concat(configured, shown))
	}
	t.Paths = slices.Concat(configured, shown)
	return t, err
}

// openShown checks that the account of an embedded supervisor can open the toolchains named on its command line. It
// returns their absolute paths, without those that are configured too.
func openShown(configured, shown []string, account *directory.Account) ([]string, error) {
	shown = slices.Clone(shown)
	for i, path := range shown {
		path, err := directory.Absolute(path)
		if err != nil {
			return nil, err
		}
		dir, err := directory.OpenFor(account, path)
		if err != nil {
			return nil, fmt.Errorf("toolchain: %w", err)
		}
		dir.Close()
		shown[i] = path
	}
	return slices.DeleteFunc(shown, func(path string) bool { return slices.Contains(configured, path) }), nil
}

// showable returns the toolchains that can be shown now, and logs the others. A toolchain may be in a user's
// directory and be replaced by that user, who must not be able to keep the supervisor from starting.
func showable(paths []string, log *slog.Logger) []string {
	var list []string
	for _, path := range paths {
		if _, err := rootfs.Host(rootfs.Options{Toolchains: []string{path}}); err != nil {
			log.Warn("toolchain not shown", "toolchain", path, "reason", err)
			continue
		}
		list = append(list, path)
	}
	return list
}

// holdAll holds all of the toolchains or, on an error, none.
func (t *Toolchains) holdAll(paths []string) error {
	// rootfs.Host applies the same checks here as when a jail is built.
	_, err := rootfs.Host(rootfs.Options{Toolchains: paths, Hold: t.hold})
	if err != nil {
		return errors.Join(err, t.Close())
	}
	return nil
}

// hold mounts the directory behind descriptor dir. Mounts below it on the host, existing or later ones, are not
// included.
func (t *Toolchains) hold(path string, dir int) (string, error) {
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
	if err := MakeDir(source); err != nil {
		return "", err
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, source, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return "", fmt.Errorf("move_mount: %w", err)
	}
	t.held[path] = heldToolchain{Inode: InodeOf(&st), source: source}
	return source, nil
}

// Source returns the mount point of a directory if it is still the one that is held.
func (t *Toolchains) Source(path string, dir int) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(dir, &st); err != nil {
		return "", fmt.Errorf("stat: %w", err)
	}
	h, ok := t.held[path]
	if !ok || h.Inode != InodeOf(&st) {
		return "", errReplaced
	}
	return h.source, nil
}

var errReplaced = errors.New("it was replaced since the supervisor was started (hint: restart the supervisor to show the new directory)")

// Close unmounts the toolchains.
func (t *Toolchains) Close() error {
	var all []error
	for path, h := range t.held {
		if err := unix.Unmount(h.source, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			all = append(all, &os.PathError{Op: "umount toolchain", Path: path, Err: err})
		}
	}
	clear(t.held)
	return errors.Join(all...)
}
