// Package privilege lets a front-end that root started become an ordinary user.
//
// Root is dropped before anything is parsed that others could have written. See package embed for the choice of the user.
package privilege

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"corral/isolate/client/embed"
)

// Nobody returns the user nobody:nogroup of the host, for commands that need no files. It is used if SUDO_UID is not set
// and there is no user corral. A client of a supervisor gets a user id of its own instead.
func Nobody() embed.Identity { return embed.Identity{UID: 65534, GID: 65534} }

// Drop gives up root for commands that need no supervisor. It does nothing for other users.
func Drop() error {
	if os.Geteuid() != 0 {
		return nil
	}
	who, err := embed.Choose(Nobody())
	if err != nil {
		return err
	}
	return who.Become()
}

// Connect runs dial, which connects to a supervisor, and then is Drop. To the supervisor, the connection is one of the user that this
// process becomes (SO_PEERCRED has the effective ids, unix(7)), although that user alone might not reach the socket: root may connect to
// any. Other users connect with their own rights.
func Connect(dial func() error) error {
	if os.Geteuid() != 0 {
		return dial()
	}
	who, err := embed.Choose(Nobody())
	if err != nil {
		return err
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := effective(who)
		if err == nil {
			err = dial()
		}
		if back := effective(embed.Identity{}); back != nil {
			done <- errors.Join(err, back)
			return // still locked: the thread ends with this goroutine
		}
		runtime.UnlockOSThread()
		done <- err
	}()
	return errors.Join(<-done, who.Become())
}

// effective sets the effective user and group of the calling thread alone. It keeps root's rights on files (setfsuid(2)), and root as
// its real user.
func effective(who embed.Identity) error {
	const same = ^uintptr(0)
	ids := []struct {
		call uintptr
		id   int
	}{{unix.SYS_SETRESGID, who.GID}, {unix.SYS_SETRESUID, who.UID}}
	if who.UID == 0 {
		slices.Reverse(ids) // only root may change the group
	}
	for _, set := range ids {
		if _, _, errno := unix.RawSyscall(set.call, same, uintptr(set.id), same); errno != 0 {
			return fmt.Errorf("the ids of a connection to the supervisor: %w", errno)
		}
	}
	if got, err := unix.SetfsuidRetUid(0); err != nil || got != who.UID {
		return fmt.Errorf("setfsuid: the thread has user %d, not %d: %w", got, who.UID, err)
	}
	return nil
}

// AsCaller runs open with the rights of the user who called sudo, so that a file or directory that the command line names is
// opened as that user could open it without sudo: its content, or a part of it in an error, reaches that user. Without sudo
// it runs open with this process's rights. A permission error gets a hint that says whose rights were missing. Only the
// thread of open has the rights.
func AsCaller(open func() error) error {
	if os.Geteuid() != 0 {
		return open()
	}
	caller, err := embed.Account("")
	if err != nil {
		return err
	}
	var opened error
	if err := caller.Do(func() { opened = open() }); err != nil {
		return err
	}
	if caller.UID != 0 && errors.Is(opened, os.ErrPermission) {
		return fmt.Errorf("%w\nhint: it is opened as user %d, who called sudo, and must be readable for that user", opened, caller.UID)
	}
	return opened
}
