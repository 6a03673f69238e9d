package embed

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
)

// An Identity is the user and group of a process.
type Identity struct{ UID, GID int }

// Choose returns the identity for a front-end that root started: the user who called sudo (SUDO_UID, SUDO_GID), otherwise
// user corral, otherwise nobody, which the caller passes. It is an error if user or group would be root.
func Choose(nobody Identity) (Identity, error) { return choose(os.Getenv, user.Lookup, nobody) }

func choose(getenv func(string) string, lookup func(string) (*user.User, error), nobody Identity) (Identity, error) {
	who := nobody
	if asker, ok := parse(getenv("SUDO_UID"), getenv("SUDO_GID")); ok && !asker.root() {
		who = asker
	} else if u, err := lookup("corral"); err == nil {
		if who, ok = parse(u.Uid, u.Gid); !ok {
			return who, fmt.Errorf("user corral has the ids %q and %q: must be numbers", u.Uid, u.Gid)
		}
	}
	if who.root() {
		return who, fmt.Errorf("user %d, group %d to switch to from root: must not be root", who.UID, who.GID)
	}
	return who, nil
}

func parse(uid, gid string) (Identity, bool) {
	u, uerr := strconv.ParseUint(uid, 10, 31)
	g, gerr := strconv.ParseUint(gid, 10, 31)
	return Identity{int(u), int(g)}, uerr == nil && gerr == nil
}

func (i Identity) root() bool { return i.UID <= 0 || i.GID <= 0 }

// Become permanently switches the whole process to i, without supplementary groups or capabilities; programs that it
// executes cannot gain any. The process must be root.
func (i Identity) Become() error { return i.become(nil) }

// BecomeAccount is Become for an account, whose supplementary groups the process keeps. The account must not be root.
func BecomeAccount(a directory.Account) error {
	groups := make([]int, len(a.Groups))
	for i, g := range a.Groups {
		groups[i] = int(g)
	}
	i := Identity{int(a.UID), int(a.GID)}
	if i.root() {
		return fmt.Errorf("user %d, group %d to switch to from root: must not be root", i.UID, i.GID)
	}
	return i.become(groups)
}

func (i Identity) become(groups []int) error {
	if lowered() {
		if err := raise(); err != nil {
			return err
		}
	}
	if err := syscall.Setgroups(groups); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := syscall.Setresgid(i.GID, i.GID, i.GID); err != nil {
		return fmt.Errorf("setresgid: %w", err)
	}
	if err := syscall.Setresuid(i.UID, i.UID, i.UID); err != nil {
		return fmt.Errorf("setresuid: %w", err)
	}
	return noNewPrivs()
}

// noNewPrivs sets PR_SET_NO_NEW_PRIVS, which prctl(2) does for the calling thread only, in every thread. The Go runtime
// cannot do that if the program is linked with a C library, as this project's tests are; then it sets it for this thread.
func noNewPrivs() error {
	_, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
	if errors.Is(errno, unix.ENOTSUP) {
		return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	if errno != 0 {
		return fmt.Errorf("no_new_privs: %w", errno)
	}
	return nil
}
