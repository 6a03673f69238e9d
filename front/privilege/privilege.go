// Package privilege lets a front-end that root started become an ordinary user.
//
// Root is dropped before anything is parsed that others could have written. See package embed for the choice of the user.
package privilege

import (
	"errors"
	"fmt"
	"os"

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
