package cell

import (
	"cmp"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"corral/isolate/host"
	"corral/rootfs"
)

// jailParts are the inputs of a jail's build. They are independent of each other, so they are made concurrently.
type jailParts struct {
	tree    rootfs.Tree
	users   *os.File // the jail's user namespace
	mounted []string // mount points on the host, which the jail's process 1 mounts inside
}

// makeJailParts makes the parts in dir. u unmounts what is mounted there; the caller closes the user namespace.
func (j *Jail) makeJailParts(u *host.Cleanup, dir string) (*jailParts, error) {
	root, devices := filepath.Join(dir, "root"), filepath.Join(dir, "dev")
	p := jailParts{mounted: []string{root, devices}}
	for _, path := range p.mounted {
		u.Push(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	}
	common := ""
	if j.repo.Common != nil {
		common = j.repo.Common.Path
	}
	var work sync.WaitGroup
	var failed [3]error
	work.Go(func() { p.tree, failed[0] = j.s.roots.make(root, j.repo.Path, common) })
	work.Go(func() { failed[1] = makeDevices(devices) })
	work.Go(func() { p.users, failed[2] = j.s.Userns.JailMap(j.base) })
	work.Wait()
	if err := cmp.Or(failed[:]...); err != nil {
		if p.users != nil {
			p.users.Close()
		}
		return nil, err
	}
	return &p, nil
}

// firstIDMaps makes the id maps that are needed next: for the first job's user and, if the jail has a scanner, for
// its user.
func (j *Jail) firstIDMaps() error {
	users := uint32(1)
	if j.Scanned() {
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
// read-only. Each jail has its own, so that jobs of two jails cannot lock or watch the same inode.
func makeDevices(path string) error {
	if err := host.MountTmpfs(path, unix.MS_NOSUID|unix.MS_NOEXEC); err != nil {
		return err
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return rootfs.WriteDev(int(dir.Fd()))
}
