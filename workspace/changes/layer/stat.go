package layer

import (
	"golang.org/x/sys/unix"

	"corral/job"
)

func isDir(st *unix.Stat_t) bool { return st != nil && st.Mode&unix.S_IFMT == unix.S_IFDIR }

func isFile(st *unix.Stat_t) bool { return st != nil && st.Mode&unix.S_IFMT == unix.S_IFREG }

func isLink(st *unix.Stat_t) bool { return st != nil && st.Mode&unix.S_IFMT == unix.S_IFLNK }

// isWhiteout reports whether a file of the upper directory marks a deletion.
func isWhiteout(st *unix.Stat_t) bool {
	return st != nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

func typeOf(st *unix.Stat_t) job.FileType {
	switch {
	case isFile(st):
		return job.TypeFile
	case isDir(st):
		return job.TypeDirectory
	case isLink(st):
		return job.TypeLink
	}
	return job.TypeOther
}

// sizeOf returns the size of a file or link, and 0 for others, whose size has no meaning.
func sizeOf(st *unix.Stat_t) int64 {
	if isFile(st) || isLink(st) {
		return max(st.Size, 0)
	}
	return 0
}

// permissions are the bits that are compared and applied. A job may not set set-id bits or the sticky bit.
const permissions = 0o777

// ident identifies an inode among all that exist at the same time.
type ident struct{ dev, ino uint64 }

func identOf(st *unix.Stat_t) ident { return ident{st.Dev, st.Ino} }
