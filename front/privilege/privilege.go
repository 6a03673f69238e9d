// Package privilege lets a front-end that root started become an ordinary user.
//
// Root is dropped before anything is parsed that others could have written. See package embed for the choice of the user.
package privilege

import "corral/isolate/client/embed"

// Nobody returns the user nobody:nogroup of the host, for commands that need no files. It is used if SUDO_UID is not set
// and there is no user corral. A client of a supervisor gets a user id of its own instead.
func Nobody() embed.Identity { return embed.Identity{UID: 65534, GID: 65534} }

// Drop gives up root for good, also what embed.Lower has kept of it. It does nothing for other users.
func Drop() error {
	if !embed.Root() {
		return nil
	}
	who, err := embed.Choose(Nobody())
	if err != nil {
		return err
	}
	return who.Become()
}
