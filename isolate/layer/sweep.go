package layer

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Sweep detaches unused loop devices of this store's files, which a killed supervisor may leave behind: the file would
// keep its blocks, and its lock, until the host is rebooted. It returns the number of devices detached. Those of other
// supervisors stay: a device that is mounted, or open to be mounted, is detached at its last close, as layers request
// anyway (LOOP_CLR_FD, loop(4)).
func (s *Store) Sweep() (int, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(s.dir.Fd()), &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: s.path, Err: err}
	}
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	swept := 0
	for _, f := range files {
		b, e := os.ReadFile(f)
		if e != nil || !strings.HasPrefix(string(b), s.path+"/") { // detached meanwhile, or not of this store
			continue
		}
		err = errors.Join(err, detach("/dev/"+filepath.Base(filepath.Dir(filepath.Dir(f))), st.Dev))
		if _, e := os.Stat(f); errors.Is(e, os.ErrNotExist) {
			swept++
		}
	}
	return swept, err
}

// detach detaches a loop device whose file is on the file system dev, once no process has it open.
func detach(node string, dev uint64) error {
	device, err := os.OpenFile(node, os.O_RDONLY, 0)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer device.Close()
	info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	if err == nil && info.Device == dev {
		err = unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0)
	}
	if err != nil && !errors.Is(err, unix.ENXIO) {
		return &os.PathError{Op: "detach", Path: node, Err: err}
	}
	return nil
}
