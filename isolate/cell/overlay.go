package cell

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/isolate/inside"
)

// An overlaySpec describes an overlay to be made.
type overlaySpec struct {
	name  string                   // directory of the layer
	mode  uint32                   // of its upper directory, and so of the merged one
	fill  func(upper string) error // writes what exists before the first job; may be nil
	below func() (*os.File, error) // returns a detached mount of the lower directory
}

// overlay makes an overlay, mounts it in a.dir, and returns the mount point.
func (a *assembly) overlay(m overlaySpec) (string, error) {
	name := m.name
	if err := a.layerDir().ownedDir(name+"/upper", m.mode); err != nil {
		return "", err
	}
	if m.fill != nil {
		if err := m.fill(filepath.Join(a.layer.Path(), name, "upper")); err != nil {
			return "", err
		}
	}
	if err := a.layerDir().freshWork(name + "/work"); err != nil {
		return "", err
	}
	lower, err := m.below()
	if err != nil {
		return "", err
	}
	defer lower.Close()
	part, err := a.fromLayer(name, false)
	if err != nil {
		return "", err
	}
	defer part.Close()
	merged, err := a.init.ask(inside.AskOverlay, func() {}, lower, part)
	if err != nil {
		return "", fmt.Errorf("overlay: %w", err)
	}
	defer merged.Close()
	if err := a.layerDir().makeKept(name); err != nil {
		return "", err
	}
	return a.attach(merged)
}

// attach mounts a detached mount at a new mount point in a.dir: only an attached mount can be cloned for each job.
func (a *assembly) attach(mount *os.File) (string, error) {
	at := filepath.Join(a.dir, a.instance.Unique("mount-"))
	if err := host.MakeDir(at); err != nil {
		return "", err
	}
	a.u.Push(func() { a.report("directory", os.Remove(at)) })
	if err := unix.MoveMount(int(mount.Fd()), "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return "", fmt.Errorf("move_mount: %w", err)
	}
	a.u.Push(func() { _ = unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) })
	return at, nil
}

// DropCaches makes the session's overlays forget which files of the repository, of its git directory and of the layer they have found
// under which names, except those that a process of the jail uses: they show what is there now. The kernel does that whenever it
// reconfigures a file system, whether anything changes or not.
func (j *Jail) DropCaches() error {
	err := dropCaches(j.view.merged)
	if j.view.common != "" {
		err = errors.Join(err, dropCaches(j.view.common))
	}
	return err
}

func dropCaches(overlay string) error {
	fd, err := unix.Open(overlay, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: overlay, Err: err}
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.OVERLAYFS_SUPER_MAGIC {
		return errors.Join(err, errors.New("the overlay is not mounted any more"))
	}
	picked, err := unix.Fspick(fd, "", unix.FSPICK_CLOEXEC|unix.FSPICK_EMPTY_PATH)
	if err != nil {
		return fmt.Errorf("fspick: %w", err)
	}
	defer unix.Close(picked)
	if err := unix.FsconfigReconfigure(picked); err != nil {
		return fmt.Errorf("fsconfig: %w", err)
	}
	return nil
}

// whiteOut hides paths of an overlay's lower directory by writing whiteouts into its upper directory, before the
// overlay is mounted: a character device 0:0 hides the name (overlayfs.rst, "whiteouts and opaque directories").
func whiteOut(upper string, paths []string) error {
	for _, p := range paths {
		parts := strings.Split(p, "/")
		at := upper
		for _, name := range parts[:len(parts)-1] {
			at = filepath.Join(at, name)
			if err := unix.Mkdir(at, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
				return &os.PathError{Op: "mkdir", Path: at, Err: err}
			}
			if err := setOwner(at, userOwner, 0o755); err != nil {
				return err
			}
		}
		at = filepath.Join(at, parts[len(parts)-1])
		if err := unix.Mknod(at, unix.S_IFCHR, 0); err != nil {
			return &os.PathError{Op: "mknod", Path: at, Err: err}
		}
	}
	return nil
}
