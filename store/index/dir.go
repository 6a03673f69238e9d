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

// dirName is the name of the directory of bases in a state directory.
const dirName = "index"

// Files are accessed by a descriptor of their directory and a name without a slash.
const (
	dirFlags  = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	makeFlags = unix.O_RDWR | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	lockFlags = unix.O_RDWR | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	dirMode   = 0o700
	fileMode  = 0o600
)

// errNone reports that a base has no file.
var errNone = errors.New("no such knowledge base")

// errName returns err as a PathError, as package os does.
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

// reopen returns a descriptor of a directory that stays open when the caller closes dir.
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

// openDir opens the directory of bases. If it does not exist, openDir creates it if create is set, and otherwise returns
// errNone.
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

// private returns an error unless st is a file of that kind that only this user can access.
func private(name string, st *unix.Stat_t, kind uint32) error {
	what := ""
	switch {
	case st.Mode&unix.S_IFMT != kind:
		what = "of an unexpected type"
	case int(st.Uid) != os.Geteuid():
		what = "owned by another user"
	case st.Mode&0o077 != 0:
		what = fmt.Sprintf("accessible to other users (mode %04o)", st.Mode&0o7777)
	case kind == unix.S_IFREG && st.Nlink > 1:
		what = "hard-linked under another name"
	default:
		return nil
	}
	return fmt.Errorf("%s is %s\nhint: another user may be able to read or change the knowledge base; remove it", name, what)
}

// stat returns the status of a file of a base, without following a link.
func stat(dir int, name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, errName("stat", name, err)
}

// lockTimeout bounds the wait for a process that opens or purges a base.
const lockTimeout = 10 * time.Second

// lockDir locks the directory, so that no other process creates, opens or removes a base. Closing dir releases the lock.
func lockDir(ctx context.Context, dir int) error {
	wait := 50 * time.Microsecond
	for until := time.Now().Add(lockTimeout); ; wait = min(2*wait, 5*time.Millisecond) {
		err := unix.Flock(dir, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return errName("lock", dirName, err)
		case time.Now().After(until):
			return fmt.Errorf("%s has been locked by another process for %v", dirName, lockTimeout)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// lockedDir opens and locks the directory of bases. Closing it releases the lock. It returns errNone if it does not
// exist.
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

// The names of a base's files are HASH-GENERATION plus one of these suffixes. SQLite opens files that belong to a
// database by their names, at any time, and trusts their content. So no name is reused: a base that was purged gets a new
// generation.
const (
	dbSuffix   = ".db"
	lockSuffix = ".lock"
)

var suffixes = [...]string{dbSuffix, dbSuffix + "-wal", dbSuffix + "-shm", dbSuffix + "-journal", lockSuffix}

// prefix returns the prefix of the names of a base's files.
func (b Base) prefix() string {
	sum := sha256.Sum256([]byte(b.Repo + "\x00" + b.Principal))
	return hex.EncodeToString(sum[:prefixLength/2]) + "-"
}

// prefixLength is the length of a prefix without the dash.
const prefixLength = 32

// maxNames bounds how many names of a directory are read.
const maxNames = 1 << 20

// files returns the names of a base's files, with any suffix.
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

// generation returns the name, without suffix, of a base's latest database, or "".
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

// remove removes files of a base, and links and empty directories in their place, but not what links point to. The caller
// holds the lock on the directory.
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

// removeBase removes all files of a base. The caller holds the lock on the directory.
func removeBase(dir int, b Base) error {
	names, err := files(dir, b)
	if err != nil {
		return err
	}
	return remove(dir, names)
}

// removeOther removes the files of all generations except one.
func removeOther(dir int, names []string, but string) error {
	var old []string
	for _, name := range names {
		if but == "" || !strings.HasPrefix(name, but+".") {
			old = append(old, name)
		}
	}
	return remove(dir, old)
}

// lockRange locks or unlocks a byte of an open file against other open file descriptions (fcntl(2), F_OFD_SETLK), without
// waiting. The lock is released with the description, also when the process is killed.
func lockRange(fd int, kind int16, at int64) bool {
	l := unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: at, Len: 1}
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &l) == nil
}

func closeFD(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}
