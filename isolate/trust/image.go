package trust

import (
	"errors"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"corral/rootfs"
)

// An image is a root file system that somebody else made. Nothing in it is read, and no link in it is followed.
type image struct{ top *os.File }

// Image returns the files to be merged over the root file system in a directory: those of other distributions than the host's,
// too.
func (f *Files) Image(top *os.File) (rootfs.Tree, error) {
	if f == nil {
		return rootfs.Tree{}, nil
	}
	return f.add(image{top})
}

func (i image) file(p string) (string, bool) {
	mode, err := i.mode(p)
	return p, err == nil && mode != unix.S_IFDIR
}

func (i image) dir(p string) (string, bool) {
	for at := p; at != "/"; at = path.Dir(at) {
		mode, err := i.mode(at)
		if err == nil || !errors.Is(err, unix.ENOENT) {
			return p, err == nil && mode == unix.S_IFDIR
		}
	}
	return p, true
}

func (i image) has(p string) bool {
	_, err := i.mode(p)
	return !errors.Is(err, unix.ENOENT)
}

// mode returns the type of what is at p. It is an error if a directory above it is a link.
func (i image) mode(p string) (uint32, error) {
	fd, err := unix.Openat2(int(i.top.Fd()), p[1:], &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return st.Mode & unix.S_IFMT, err
}
