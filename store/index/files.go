package index

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/store/at"
)

// dirName is the name of the directory of bases in a state directory.
const dirName = "index"

// Flags for files, which are opened by the descriptor of their directory (package at).
const (
	makeFlags = unix.O_RDWR | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	lockFlags = unix.O_RDWR | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
)

// errNone reports that a base has no file.
var errNone = errors.New("no such knowledge base")

// openDir opens the directory of bases. If it does not exist, openDir creates it if create is set, and otherwise returns
// errNone.
func openDir(state int, create bool) (int, error) {
	if create {
		if err := unix.Mkdirat(state, dirName, at.DirMode); err != nil && !errors.Is(err, unix.EEXIST) {
			return -1, at.Err("mkdir", dirName, err)
		}
	}
	fd, err := at.Open(state, dirName, at.Dir)
	if errors.Is(err, unix.ENOENT) {
		return -1, errNone
	}
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, at.Err("stat", dirName, err)
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

// The names of a base's files are HASH-GENERATION plus one of these suffixes. SQLite opens files that belong to a
// database by their names, at any time, and trusts their content. So no name is reused: a base that was purged gets a new
// generation.
const (
	dbSuffix   = ".db"
	lockSuffix = ".lock"
)

var suffixes = [...]string{dbSuffix, dbSuffix + "-wal", dbSuffix + "-shm", dbSuffix + "-journal", lockSuffix}

// A Base identifies a knowledge base. Any strings are allowed; they never become part of a path.
type Base struct{ Repo, Principal string }

// Prefix returns the prefix of the names of a base's files.
func (b Base) Prefix() string {
	sum := sha256.Sum256([]byte(b.Repo + "\x00" + b.Principal))
	return hex.EncodeToString(sum[:prefixLength/2]) + "-"
}

// prefixLength is the length of a prefix without the dash.
const prefixLength = 32

// maxNames bounds how many names of a directory are read.
const maxNames = 1 << 20

// files returns the names of a base's files, with any suffix.
func files(dir int, b Base) ([]string, error) {
	all, err := at.Names(dir, maxNames)
	if err != nil {
		return nil, err
	}
	prefix := b.Prefix()
	var own []string
	for _, name := range all {
		if strings.HasPrefix(name, prefix) {
			own = append(own, name)
		}
	}
	return own, nil
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
		gen, _, _ := strings.Cut(strings.TrimPrefix(name, b.Prefix()), ".")
		if n, err := strconv.ParseUint(gen, 16, 64); err == nil && n >= at {
			at = n + 1
		}
	}
	return fmt.Sprintf("%s%016x", b.Prefix(), at)
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
			errs = append(errs, at.Err("remove", name, err))
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

// closeFD closes a descriptor that is not negative.
func closeFD(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}
