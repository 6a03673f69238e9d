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

// An Account is a user with whose rights directories are opened. The zero Account is root.
type Account struct {
	UID, GID uint32
	Groups   []uint32 // supplementary groups
}

// Has says whether the account is in a group.
func (a Account) Has(gid uint32) bool { return a.GID == gid || slices.Contains(a.Groups, gid) }

// String is the account as ParseAccount reads it: UID:GID or UID:GID:GROUP,GROUP.
func (a Account) String() string {
	s := fmt.Sprintf("%d:%d", a.UID, a.GID)
	for i, g := range a.Groups {
		s += map[bool]string{true: ":", false: ","}[i == 0] + strconv.FormatUint(uint64(g), 10)
	}
	return s
}

// MaxGroups bounds the supplementary groups of an account: the kernel's own bound is 65,536 (credentials(7)), and as many
// would fit on no command line.
const MaxGroups = 4096

// ParseAccount reads what String writes. The highest id is none that a user can have (chown(2)).
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

// Open is Open with the account's rights: what root alone can reach is out of its reach, and so is a directory that the account
// may not read and enter, which opening it as a place (O_PATH) does not ask for. Preconditions: see Do.
func (a Account) Open(path string) (dir *os.File, err error) {
	done := a.Do(func() {
		if dir, err = Open(path); err != nil {
			return
		}
		// With the ids for file access and no capability: faccessat2(2) takes the effective ones.
		if may := unix.Faccessat(int(dir.Fd()), "", unix.R_OK|unix.X_OK, unix.AT_EMPTY_PATH|unix.AT_EACCESS); may != nil {
			dir.Close()
			dir, err = nil, &os.PathError{Op: "open", Path: path, Err: may}
		}
	})
	return dir, errors.Join(done, err)
}

// OpenFor is a.Open, and Open with the rights of this process where a is nil.
func OpenFor(a *Account, path string) (*os.File, error) {
	if a != nil {
		return a.Open(path)
	}
	return Open(path)
}

// Do runs f with the account's rights on files: its user and group ids for file access, its supplementary groups, and no
// capability (setfsuid(2), capabilities(7)). Only f's own thread has them, so f must start no goroutine that relies on
// them. Preconditions: this process is root, or the account is its own; otherwise f is not run, and Do returns an error.
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
				return // the thread ends with this goroutine, which stays locked to it
			}
		}
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

// A thread is what Do changes of a thread.
type thread struct {
	fsuid, fsgid int
	groups       []int
	caps         [2]unix.CapUserData
}

// capability header of the calling thread, version 3: 64-bit sets in two parts.
func header() *unix.CapUserHeader {
	return &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
}

// credentials returns those of the calling thread.
func credentials() (t thread, err error) {
	// An id that nobody can have is refused, and the one that holds is returned (setfsuid(2)).
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

// assume gives the calling thread the account's rights on files. Capabilities come last, for the rest needs them.
func (a Account) assume() error {
	groups := make([]int, len(a.Groups))
	for i, g := range a.Groups {
		groups[i] = int(g)
	}
	t := thread{fsuid: int(a.UID), fsgid: int(a.GID), groups: groups}
	if err := t.setIDs(); err != nil {
		return err
	}
	// The kernel takes only those capabilities away that are about files, and that not with SECBIT_NO_SETUID_FIXUP.
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

// restore gives the calling thread back what it had.
func (t thread) restore() error {
	if err := unix.Capset(header(), &t.caps[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	if err := t.setIDs(); err != nil {
		return err
	}
	// A change of the user id for file access changes the effective set, too.
	if err := unix.Capset(header(), &t.caps[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}

// setIDs sets the ids of the calling thread. Those of package syscall are of the whole process.
func (t thread) setIDs() error {
	list := make([]uint32, len(t.groups)+1) // one more, for its address
	for i, g := range t.groups {
		list[i] = uint32(g)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(t.groups)), uintptr(unsafe.Pointer(&list[0])), 0); errno != 0 {
		return fmt.Errorf("setgroups: %w", errno)
	}
	// Both return the id that was, also when they refuse: so the second call tells.
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
