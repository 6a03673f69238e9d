package runtimes

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// readSmall returns the first maxSmall bytes of a regular file below dir, or "" if there is none. Links cannot lead out
// of dir. The file is opened for reading only after it is known to be regular, since opening a device or a FIFO can have
// side effects or block.
func readSmall(dir, name string) string { return readFirst(dir, name, maxSmall) }

// readFirst is readSmall for the first most bytes.
func readFirst(dir, name string, most int64) string {
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
	b, err := io.ReadAll(io.LimitReader(f, most))
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

// Bounds on what is read of the host. Directories of version managers are writable by users.
const (
	maxNames = 512     // names read per directory
	maxSmall = 8 << 10 // bytes read per file
)

// below reports whether path is dir or inside it. Both must be absolute and clean.
func below(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// names returns up to maxNames names in a directory, sorted by version: go1.9 comes before go1.10.
func names(dir string) []string {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_NOCTTY, 0) // a FIFO would block
	if err != nil {
		return nil
	}
	defer d.Close()
	list, err := d.Readdirnames(maxNames)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	slices.SortFunc(list, byVersion)
	return list
}

// byVersion compares names, with numbers in them compared by value.
func byVersion(a, b string) int {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x == "" || y == "" {
			if a[0] != b[0] {
				return int(a[0]) - int(b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		a, b = a[len(x):], b[len(y):]
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if len(x) != len(y) {
			return len(x) - len(y)
		}
		if x != y {
			return strings.Compare(x, y)
		}
	}
	return len(a) - len(b)
}

// digits returns the decimal digits that s starts with.
func digits(s string) string { return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))] }
