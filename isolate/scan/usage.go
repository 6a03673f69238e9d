package scan

import (
	"errors"
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// maxLinks is the maximum number of inodes with several names that are remembered, so that each counts once. Beyond it
// each name counts.
const maxLinks = 1 << 16

// blockSize is the unit of st_blocks, see inode(7).
const blockSize = 512

// usage is one sum over the tree.
type usage struct {
	s             *Scanner
	since         int64
	deadline      time.Time
	dirs, entries int
	seen          map[ident]bool // inodes with several names
	bytes, inodes int64
	incomplete    bool
	late          bool // Time was reached
}

// Usage returns the total size and number of all files, directories and others below the repository whose inode changed
// since, with the same tick allowed for as in [Scanner.Changed]. The zero time means all. The size is the allocated
// space, so a file written before and touched since counts in full. It walks the whole tree and reads each entry's state;
// git's objects count as well. If a bound is reached or a directory cannot be read, the sums so far come with
// [ErrIncomplete]. It neither needs nor changes the baseline.
func (s *Scanner) Usage(since time.Time) (bytes, inodes int64, err error) {
	u := &usage{s: s, since: math.MinInt64, deadline: time.Now().Add(s.bounds.Time), seen: map[ident]bool{}}
	if since.Unix() > 0 {
		u.since = since.Add(-granularity).UnixNano()
	}
	u.dir(s.fd, ".", 0)
	if u.incomplete {
		err = ErrIncomplete
	}
	return u.bytes, u.inodes, err
}

// dir adds everything below the directory name.
func (u *usage) dir(parent int, name string, depth int) {
	u.dirs++
	if depth > MaxDepth || u.over() {
		u.incomplete = true
		return
	}
	fd, err := openAt(parent, name, unix.O_RDONLY)
	if err != nil {
		if !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.ENOENT) {
			u.incomplete = true
		}
		return
	}
	defer unix.Close(fd)
	var dirs []string
	err = list(fd, u.s.buf, func(name []byte, _ uint8) bool {
		u.entries++
		if u.over() {
			u.incomplete = true
			return false
		}
		st, err := lstat(fd, string(name))
		if err != nil {
			return true // removed meanwhile
		}
		u.add(&st)
		if st.is(unix.S_IFDIR) {
			dirs = append(dirs, string(name))
		}
		return true
	})
	if err != nil {
		u.incomplete = true
	}
	for _, d := range dirs {
		u.dir(fd, d, depth+1)
	}
}

func (u *usage) add(st *stat) {
	if latest(st.ctime) < u.since {
		return
	}
	if st.linked && !st.is(unix.S_IFDIR) {
		if u.seen[st.id] {
			return
		}
		if len(u.seen) < maxLinks {
			u.seen[st.id] = true
		}
	}
	u.bytes += st.blocks * blockSize
	u.inodes++
}

// over reports whether a bound has been reached. Once true, it stays true.
func (u *usage) over() bool {
	b := &u.s.bounds
	if u.dirs > b.MaxDirs || u.entries > b.MaxEntries {
		return true
	}
	if !u.late && (u.dirs+u.entries)%256 == 0 {
		u.late = time.Now().After(u.deadline)
	}
	return u.late
}
