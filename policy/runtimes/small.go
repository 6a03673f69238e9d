package runtimes

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// readSmall returns the first maxSmall bytes of a regular file below dir, or "" if there is none. Links cannot lead out
// of dir. The file is opened for reading only after it is known to be regular, since opening a device or a FIFO can have
// side effects or block.
func readSmall(dir, name string) string {
	d, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return ""
	}
	defer d.Close()
	found, err := openBeneath(d, name)
	if err != nil {
		return ""
	}
	defer found.Close()
	if info, err := found.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", found.Fd()), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSmall))
	if err != nil {
		return ""
	}
	return string(b)
}

// openBeneath opens name below dir with O_PATH.
func openBeneath(dir *os.File, name string) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	var err error
	for range 100 { // EAGAIN: a concurrent rename or mount while the path contains ".."
		var fd int
		if fd, err = unix.Openat2(int(dir.Fd()), name, &how); err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			break
		}
	}
	return nil, err
}
