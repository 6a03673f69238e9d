package index

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// dirName is the directory of bases within that of a user's state.
const dirName = "index"

// Files are made and looked at by a descriptor of their directory and a name without a slash.
const (
	dirFlags  = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	makeFlags = unix.O_RDWR | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	lockFlags = unix.O_RDWR | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	dirMode   = 0o700
	fileMode  = 0o600
)

// errNone says that a base has no file.
var errNone = errors.New("there is no such base")

// errName is what os calls with the name that failed.
func errName(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: name, Err: err}
}

func openat(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags, fileMode)
		if !errors.Is(err, unix.EINTR) {
			return fd, errName("open", name, err)
		}
	}
}

// reopen returns a descriptor of a directory that does not end with the caller's.
func reopen(dir *os.File) (int, error) {
	c, err := dir.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	if cerr := c.Control(func(d uintptr) { fd, err = openat(int(d), ".", dirFlags) }); cerr != nil {
		return -1, cerr
	}
	return fd, err
}

// openDir opens the directory of bases. If there is none it is made, or else is errNone.
func (x *Index) openDir(create bool) (int, error) {
	if create {
		if err := unix.Mkdirat(x.state, dirName, dirMode); err != nil && !errors.Is(err, unix.EEXIST) {
			return -1, errName("mkdir", dirName, err)
		}
	}
	fd, err := openat(x.state, dirName, dirFlags)
	if errors.Is(err, unix.ENOENT) {
		return -1, errNone
	}
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, errName("stat", dirName, err)
	}
	if err := private(dirName, &st, unix.S_IFDIR); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// private is an error unless st is of a file of that kind that is this user's alone.
func private(name string, st *unix.Stat_t, kind uint32) error {
	what := ""
	switch {
	case st.Mode&unix.S_IFMT != kind:
		what = "of a kind that was not made here"
	case int(st.Uid) != os.Geteuid():
		what = "another user's"
	case st.Mode&0o077 != 0:
		what = fmt.Sprintf("open to other users (mode %04o)", st.Mode&0o7777)
	case kind == unix.S_IFREG && st.Nlink > 1:
		what = "known by a second name"
	default:
		return nil
	}
	return fmt.Errorf("%s is %s\nhint: whoever put it there may read or change the knowledge base; remove it", name, what)
}

// look looks at a file of a base.
func look(dir int, name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, errName("stat", name, err)
}

// patience is how long is waited for a process that opens or purges a base.
const patience = 10 * time.Second

// lockDir locks the directory against whoever else would make, open or remove a base. Closing dir unlocks it.
func lockDir(ctx context.Context, dir int) error {
	wait := 50 * time.Microsecond
	for until := time.Now().Add(patience); ; wait = min(2*wait, 5*time.Millisecond) {
		err := unix.Flock(dir, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return errName("lock", dirName, err)
		case time.Now().After(until):
			return fmt.Errorf("%s has been locked by another process for %v", dirName, patience)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// lockedDir opens the directory of bases and locks it: closing it unlocks it. Without one it is errNone.
func (x *Index) lockedDir(ctx context.Context) (int, error) {
	dir, err := x.openDir(false)
	if err != nil {
		return -1, err
	}
	if err := lockDir(ctx, dir); err != nil {
		closeFD(dir)
		return -1, err
	}
	return dir, nil
}

func unlockDir(dir int) { _ = unix.Flock(dir, unix.LOCK_UN) }

// A base's files are HASH-GENERATION and one of these. SQLite opens what belongs to a database by the database's name, at
// any time, and believes what it finds: so no name is used for a second database. What was purged is another generation.
const (
	dbSuffix   = ".db"
	lockSuffix = ".lock"
)

var suffixes = [...]string{dbSuffix, dbSuffix + "-wal", dbSuffix + "-shm", dbSuffix + "-journal", lockSuffix}

// prefix is what the names of a base's files begin with.
func (b Base) prefix() string {
	sum := sha256.Sum256([]byte(b.Repo + "\x00" + b.Principal))
	return hex.EncodeToString(sum[:prefixLength/2]) + "-"
}

// prefixLength is how long a prefix is, without the dash.
const prefixLength = 32

// maxNames bounds how many names of a directory are looked at.
const maxNames = 1 << 20

// files returns the names of a base's files, with whatever suffix.
func files(dir int, b Base) ([]string, error) {
	all, err := namesIn(dir)
	if err != nil {
		return nil, err
	}
	prefix := b.prefix()
	var own []string
	for _, name := range all {
		if strings.HasPrefix(name, prefix) {
			own = append(own, name)
		}
	}
	return own, nil
}

// namesIn returns the names in a directory.
func namesIn(dir int) ([]string, error) {
	fd, err := openat(dir, ".", dirFlags)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), dirName)
	defer f.Close()
	all, err := f.Readdirnames(maxNames)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return all, nil
}

// generation returns the name, without suffix, of a base's latest database: "" is none.
func generation(names []string) string {
	latest := ""
	for _, name := range names {
		if stem, ok := strings.CutSuffix(name, dbSuffix); ok && stem > latest {
			latest = stem
		}
	}
	return latest
}

// newGeneration returns a name that no database of the base has had.
func newGeneration(b Base, names []string) string {
	at := uint64(time.Now().UnixNano())
	for _, name := range names {
		gen, _, _ := strings.Cut(strings.TrimPrefix(name, b.prefix()), ".")
		if n, err := strconv.ParseUint(gen, 16, 64); err == nil && n >= at {
			at = n + 1
		}
	}
	return fmt.Sprintf("%s%016x", b.prefix(), at)
}

// remove removes files of a base; a directory or link in the place of one, too, but nothing that is in it or that it
// points to. The caller has the directory locked.
func remove(dir int, names []string) error {
	var errs []error
	for _, name := range names {
		err := unix.Unlinkat(dir, name, 0)
		if errors.Is(err, unix.EISDIR) {
			err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		}
		if err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, errName("remove", name, err))
		}
	}
	return errors.Join(errs...)
}

// removeBase removes all files of a base. The caller has the directory locked.
func removeBase(dir int, b Base) error {
	names, err := files(dir, b)
	if err != nil {
		return err
	}
	return remove(dir, names)
}

// removeOther removes the files of all generations but one.
func removeOther(dir int, names []string, but string) error {
	var old []string
	for _, name := range names {
		if but == "" || !strings.HasPrefix(name, but+".") {
			old = append(old, name)
		}
	}
	return remove(dir, old)
}

// lockRange locks a byte of an open file against other descriptions of it (fcntl(2), F_OFD_SETLK), without waiting. The
// lock ends with the description, also when the process is killed.
func lockRange(fd int, kind int16, at int64) bool {
	l := unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: at, Len: 1}
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &l) == nil
}

func closeFD(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}
