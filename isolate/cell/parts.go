package cell

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/rootfs"
)

// jailParts are the inputs of a jail's build. They are independent of each other, so they are made concurrently.
type jailParts struct {
	root    *jailRoot
	users   *os.File // the jail's user namespace
	mounted []string // mount points on the host, which the jail's process 1 mounts inside
}

// makeJailParts makes the parts of a jail for the repository r in dir, whose jobs trust an authority unless it is empty.
// u unmounts what is mounted there; userns makes the user namespace, which the caller closes.
func makeJailParts(
	u *host.Cleanup, dir string, roots *roots, r *admit.Repo, authority []byte, userns func() (*os.File, error),
) (*jailParts, error) {
	root, devices := filepath.Join(dir, "root"), filepath.Join(dir, "dev")
	p := jailParts{mounted: []string{root, devices}}
	for _, path := range p.mounted {
		u.Push(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	}
	common := ""
	if r.Common != nil {
		common = r.Common.Path
	}
	var work sync.WaitGroup
	var failed [3]error
	for n, f := range []func() error{
		func() (err error) { p.root, err = roots.make(root, r.Path, common, authority); return err },
		func() error { return makeDevices(devices) },
		func() (err error) { p.users, err = userns(); return err },
	} {
		work.Go(func() { failed[n] = fault.Contain(roots.log, "building a jail", f) })
	}
	work.Wait()
	if p.root != nil {
		u.Push(p.root.close)
	}
	if err := cmp.Or(failed[:]...); err != nil {
		if p.users != nil {
			p.users.Close()
		}
		return nil, err
	}
	return &p, nil
}

// unmount unmounts the trees here, once the jail's own mount namespace has them: every clone of this mount namespace
// copies each mount in it.
func (p *jailParts) unmount() error {
	for _, path := range p.mounted {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("umount %s: %w", path, err)
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
