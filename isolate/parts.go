package isolate

import (
	"cmp"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"corral/rootfs"
)

// parts are what a jail is built from. None needs another, so they are made side by side.
type parts struct {
	tree    rootfs.Tree
	users   *os.File // the jail's user namespace
	mounted []string // what lies on the host, for the jail's first process to mount
}

// makeParts makes them in dir. What is mounted there is unmounted by u, and the user namespace is the caller's to close.
func (j *jail) makeParts(u *undo, dir string) (*parts, error) {
	root, devices := filepath.Join(dir, "root"), filepath.Join(dir, "dev")
	p := parts{mounted: []string{root, devices}}
	for _, path := range p.mounted {
		u.push(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	}
	var work sync.WaitGroup
	var failed [3]error
	work.Go(func() { p.tree, failed[0] = j.makeRoot(root) })
	work.Go(func() { failed[1] = makeDevices(devices) })
	work.Go(func() { p.users, failed[2] = j.s.userns.jailUsers(j.base) })
	work.Wait()
	if err := cmp.Or(failed[:]...); err != nil {
		if p.users != nil {
			p.users.Close()
		}
		return nil, err
	}
	return &p, nil
}

// firstIDMaps makes the maps of the users that are asked for next: the first job's and, if there is one, the scanner's.
func (j *jail) firstIDMaps() error {
	users := uint32(1)
	if j.scanned() {
		users++
	}
	for n := range users {
		if _, err := j.idmap(n); err != nil {
			return err
		}
	}
	return nil
}

// makeDevices makes the jail's device nodes: only the host's root can make them, and in the jail they are mounted
// read-only. Each jail has its own, so that jobs of two cannot lock or watch the same inode.
func makeDevices(path string) error {
	if err := mountTmpfs(path, unix.MS_NOSUID|unix.MS_NOEXEC); err != nil {
		return err
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return rootfs.WriteDev(int(dir.Fd()))
}
