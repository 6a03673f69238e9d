package directory

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An Account is a user with whose rights directories are opened. The zero value is root.
type Account struct {
	UID, GID uint32
	Groups   []uint32 // supplementary groups
}

// Has reports whether the account is in a group.
func (a Account) Has(gid uint32) bool { return a.GID == gid || slices.Contains(a.Groups, gid) }

// String returns the account in the form that ParseAccount accepts: UID:GID or UID:GID:GROUP,GROUP.
func (a Account) String() string {
	s := fmt.Sprintf("%d:%d", a.UID, a.GID)
	for i, g := range a.Groups {
		s += map[bool]string{true: ":", false: ","}[i == 0] + strconv.FormatUint(uint64(g), 10)
	}
	return s
}

// MaxGroups is the maximum number of supplementary groups of an account. The kernel's maximum is 65,536 (credentials(7)),
// which would not fit on a command line.
const MaxGroups = 4096

// ParseAccount parses the result of String. It refuses the highest id, which no user can have (chown(2)).
func ParseAccount(s string) (Account, error) {
	words := strings.SplitN(s, ":", 3)
	if len(words) == 3 {
		words = append(words[:2], strings.Split(words[2], ",")...)
	}
	ids := make([]uint32, len(words))
	for i, w := range words {
		n, err := strconv.ParseUint(w, 10, 32)
		if err != nil || n == 1<<32-1 {
			return Account{}, fmt.Errorf("account %.80q: must be UID:GID or UID:GID:GROUP,GROUP with numeric ids", s)
		}
		ids[i] = uint32(n)
	}
	if len(ids) < 2 || len(ids) > 2+MaxGroups {
		return Account{}, fmt.Errorf("account %.80q: must be UID:GID or UID:GID:GROUP,GROUP, with at most %d groups", s, MaxGroups)
	}
	return Account{UID: ids[0], GID: ids[1], Groups: slices.Clone(ids[2:])}, nil
}

// Open is like the function Open, with the account's rights. In addition, the account must be allowed to read and search
// the directory itself, which O_PATH does not check. Preconditions: see Do.
func (a Account) Open(path string) (dir *os.File, err error) {
	done := a.Do(func() {
		if dir, err = Open(path); err != nil {
			return
		}
		// AT_EACCESS makes faccessat2(2) use the ids for file access and the effective capabilities: it has none.
		if may := unix.Faccessat(int(dir.Fd()), "", unix.R_OK|unix.X_OK, unix.AT_EMPTY_PATH|unix.AT_EACCESS); may != nil {
			dir.Close()
			dir, err = nil, &os.PathError{Op: "open", Path: path, Err: may}
		}
	})
	return dir, errors.Join(done, err)
}

// OpenFor returns a.Open(path), or if a is nil, Open(path) with the rights of this process.
func OpenFor(a *Account, path string) (*os.File, error) {
	if a != nil {
		return a.Open(path)
	}
	return Open(path)
}

// Do runs f with the account's rights on files: its user and group ids for file access, its supplementary groups, and no
// capability (setfsuid(2), capabilities(7)). Only the thread of f has them, so goroutines that f starts do not. This
// process must be root, or the account must be its own user; otherwise f is not run and Do returns an error.
func (a Account) Do(f func()) error {
	switch uid := os.Geteuid(); {
	case uint32(uid) == a.UID:
		f()
		return nil
	case uid != 0:
		return fmt.Errorf("user %d cannot open files as user %d: %w", uid, a.UID, unix.EPERM)
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		own, err := credentials()
		if err == nil {
			if err = a.assume(); err == nil {
				f()
			}
			if restored := own.restore(); restored != nil {
				done <- errors.Join(err, restored)
				return // still locked, so the thread ends with this goroutine
			}
		}
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

// A thread holds the credentials of a thread that Do changes.
type thread struct {
	fsuid, fsgid int
	groups       []int
	caps         [2]unix.CapUserData
}

// header returns the capability header for the calling thread, in version 3: 64-bit sets in two parts.
func header() *unix.CapUserHeader {
	return &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
}

// credentials returns the credentials of the calling thread.
func credentials() (t thread, err error) {
	// An invalid id changes nothing, and the current one is returned (setfsuid(2)).
	if t.fsuid, err = unix.SetfsuidRetUid(-1); err != nil {
		return t, fmt.Errorf("setfsuid: %w", err)
	}
	if t.fsgid, err = unix.SetfsgidRetGid(-1); err != nil {
		return t, fmt.Errorf("setfsgid: %w", err)
	}
	if t.groups, err = unix.Getgroups(); err != nil {
		return t, fmt.Errorf("getgroups: %w", err)
	}
	if err = unix.Capget(header(), &t.caps[0]); err != nil {
		return t, fmt.Errorf("capget: %w", err)
	}
	return t, nil
}

// assume gives the calling thread the account's rights on files. Capabilities are dropped last, because the other calls
// need them.
func (a Account) assume() error {
	groups := make([]int, len(a.Groups))
	for i, g := range a.Groups {
		groups[i] = int(g)
	}
	t := thread{fsuid: int(a.UID), fsgid: int(a.GID), groups: groups}
	if err := t.setIDs(); err != nil {
		return err
	}
	// setfsuid drops only the capabilities for files, and not even these with SECBIT_NO_SETUID_FIXUP.
	var caps [2]unix.CapUserData
	if err := unix.Capget(header(), &caps[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	caps[0].Effective, caps[1].Effective = 0, 0
	if err := unix.Capset(header(), &caps[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}

// restore sets the credentials of the calling thread to t.
func (t thread) restore() error {
	if err := unix.Capset(header(), &t.caps[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	if err := t.setIDs(); err != nil {
		return err
	}
	// setfsuid has changed the effective set.
	if err := unix.Capset(header(), &t.caps[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}

// setIDs sets the ids of the calling thread only. The functions of package syscall change all threads of the process.
func (t thread) setIDs() error {
	list := make([]uint32, len(t.groups)+1) // never empty, so that it has an address
	for i, g := range t.groups {
		list[i] = uint32(g)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(t.groups)), uintptr(unsafe.Pointer(&list[0])), 0); errno != 0 {
		return fmt.Errorf("setgroups: %w", errno)
	}
	// Both calls return the previous id even if they fail, so a second call verifies the first.
	for _, set := range []struct {
		name string
		call func(int) (int, error)
		id   int
	}{{"setfsgid", unix.SetfsgidRetGid, t.fsgid}, {"setfsuid", unix.SetfsuidRetUid, t.fsuid}} {
		if _, err := set.call(set.id); err != nil {
			return fmt.Errorf("%s: %w", set.name, err)
		}
		if got, err := set.call(-1); err != nil || got != set.id {
			return fmt.Errorf("%s: the thread has id %d, not %d", set.name, got, set.id)
		}
	}
	return nil
}
