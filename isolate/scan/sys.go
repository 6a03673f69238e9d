package scan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ident identifies an inode among all that exist at the same time.
type ident struct{ dev, ino uint64 }

// stat is the part of a file's metadata that the scanner uses. Times are nanoseconds since 1970.
type stat struct {
	id           ident
	mode         uint32
	linked       bool // has more than one name
	size, blocks int64
	mtime, ctime int64
}

func (s *stat) is(kind uint32) bool { return s.mode&unix.S_IFMT == kind }

func compact(st *unix.Stat_t) stat {
	return stat{
		id:     ident{st.Dev, st.Ino},
		mode:   st.Mode,
		linked: st.Nlink > 1,
		size:   st.Size,
		blocks: st.Blocks,
		mtime:  st.Mtim.Nano(),
		ctime:  st.Ctim.Nano(),
	}
}

// lstat returns the state of one name below dir. It never follows a link.
func lstat(dir int, name string) (stat, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return stat{}, err
	}
	return compact(&st), nil
}

func fstat(fd int) (stat, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return stat{}, err
	}
	return compact(&st), nil
}

// openAt opens the directory name, one component, below dir. Anything else fails without being opened: a link or a FIFO
// with ENOTDIR, a link on the way with ELOOP, a mount point with EXDEV. access is O_RDONLY or O_PATH. O_DIRECTORY makes
// O_NONBLOCK unnecessary, since the type is checked before the file's own open is called; and openat2 rejects O_NONBLOCK
// with O_PATH.
func openAt(dir int, name string, access uint64) (int, error) {
	return unix.Openat2(dir, name, &unix.OpenHow{
		Flags: access | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS |
			unix.RESOLVE_NO_XDEV,
	})
}

// nameOf returns the path that the kernel reports for an open file.
func nameOf(fd int) (string, error) { return os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)) }

// list calls f for each entry of the directory fd until the end or until f returns false. The name is valid during the
// call only. buf is for the kernel's linux_dirent64 records, see getdents64(2): inode and offset (8 bytes each), length
// (2), type (1), name.
func list(fd int, buf []byte, f func(name []byte, kind uint8) bool) error {
	for {
		n, err := unix.Getdents(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		for b := buf[:n]; len(b) > 19; {
			size := int(binary.NativeEndian.Uint16(b[16:]))
			if size < 20 || size > len(b) {
				return fmt.Errorf("getdents64: record of %d bytes", size)
			}
			name := cString(b[19:size])
			kind := b[18]
			b = b[size:]
			if string(name) == "." || string(name) == ".." {
				continue
			}
			if !f(name, kind) {
				return nil
			}
		}
	}
}

func cString(b []byte) []byte {
	for i, c := range b {
		if c == 0 {
			return b[:i]
		}
	}
	return b
}

// coarse reports whether a time is in whole seconds, as on a file system without finer ones, such as ext4 with inodes of
// 128 bytes. A fine time is a whole second by chance once in 10⁹.
func coarse(ctime int64) bool { return ctime%1e9 == 0 }

// latest returns the latest time that a file system may have meant by ctime. The coarsest, FAT, has a resolution of 2 s.
func latest(ctime int64) int64 {
	if coarse(ctime) {
		return ctime + 2e9
	}
	return ctime
}

// multigrain lists the file systems whose times are exact from a kernel version on: a change that follows a stat gets a
// time finer than the tick, and so a distinct ctime ("multigrain timestamps",
// Documentation/filesystems/multigrain-ts.rst). They also set the ctime of a renamed file, which POSIX leaves open. On
// all others a change within one tick may not show in the times, so the scanner distrusts times younger than a tick, and
// for a new name uses its directory's time.
var multigrain = []struct {
	magic        int64
	name         string
	major, minor int
}{
	{unix.EXT4_SUPER_MAGIC, "ext4", 6, 13},
	{unix.XFS_SUPER_MAGIC, "xfs", 6, 13},
	{unix.BTRFS_SUPER_MAGIC, "btrfs", 6, 13},
	{unix.TMPFS_MAGIC, "tmpfs", 6, 13},
}

func exactOn(magic int64, release string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return false
	}
	for _, m := range multigrain {
		if m.magic == magic {
			return major > m.major || major == m.major && minor >= m.minor
		}
	}
	return false
}

// timesExact looks up the directory's file system and the kernel in the table. If either is unknown, it returns false.
func timesExact(fd int) bool {
	var fs unix.Statfs_t
	var uts unix.Utsname
	if unix.Fstatfs(fd, &fs) != nil || unix.Uname(&uts) != nil {
		return false
	}
	return exactOn(fs.Type, unix.ByteSliceToString(uts.Release[:]))
}

// openFile opens any file below the directory dir, following no link.
func openFile(dir int, name string, access uint64) (int, error) {
	return unix.Openat2(dir, name, &unix.OpenHow{
		Flags: access | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS |
			unix.RESOLVE_NO_XDEV,
	})
}
