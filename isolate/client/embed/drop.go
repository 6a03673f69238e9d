package embed

// Nobody returns the user nobody:nogroup of the host, for commands that need no files. It is used if SUDO_UID is not set
// and there is no user corral. A client of a supervisor gets a user id of its own instead.
func Nobody() Identity { return Identity{UID: 65534, GID: 65534} }

// Drop gives up root for good, also what Lower has kept of it. It does nothing for other users. A front-end calls it before it
// parses anything that others could have written.
func Drop() error {
	if !Root() {
		return nil
	}
	who, err := Choose(Nobody())
	if err != nil {
		return err
	}
	return who.Become()
}
