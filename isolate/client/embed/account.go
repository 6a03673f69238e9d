package embed

import (
	"fmt"
	"os"
	"os/user"
	"strconv"

	"corral/internal/directory"
)

// Account returns the account that root's front-end serves: directories are opened with its rights. That is the user who
// called sudo (SUDO_UID, SUDO_GID); for root without sudo, the account called named, a name or number; otherwise root. So
// sudo does not reach directories that the user cannot reach without it, and a sudoers entry for this program alone
// grants no more than it says. Naming an account other than sudo's is an error.
//
// Groups come from the host's own files, and from other name services if the program is linked with a C library: an
// account in fewer groups reaches less, never more.
func Account(named string) (directory.Account, error) {
	return account(named, os.Getenv, accounts{user.Lookup, user.LookupId, (*user.User).GroupIds})
}

// accounts looks up the host's users.
type accounts struct {
	byName, byID func(string) (*user.User, error)
	groups       func(*user.User) ([]string, error)
}

func account(named string, getenv func(string) string, host accounts) (directory.Account, error) {
	sudo, err := host.ofSudo(getenv("SUDO_UID"), getenv("SUDO_GID"))
	if err != nil || named == "" {
		return sudo, err
	}
	a, err := host.named(named)
	if err == nil && sudo.UID != 0 && a.UID != sudo.UID {
		return a, fmt.Errorf("--account %s: sudo was called by user %d, whose directories are served\nhint: leave --account out", named, sudo.UID)
	}
	return a, err
}

// ofSudo returns the account that sudo(8) sets, or root if it sets none or root itself.
func (h accounts) ofSudo(uid, gid string) (directory.Account, error) {
	if uid == "" || uid == "0" {
		return directory.Account{}, nil
	}
	id, ok := parse(uid, gid)
	if !ok || id.UID <= 0 {
		return directory.Account{}, fmt.Errorf("SUDO_UID is %q and SUDO_GID is %q: must be a user's and a group's number\nhint: sudo sets both", uid, gid)
	}
	a := directory.Account{UID: uint32(id.UID), GID: uint32(id.GID)}
	if u, err := h.byID(uid); err == nil {
		a.Groups = h.groupsOf(u)
	}
	return a, nil
}

// named returns the account of a user by name or number. A number without an account has no groups.
func (h accounts) named(name string) (directory.Account, error) {
	u, err := h.byName(name)
	if n, bad := strconv.ParseUint(name, 10, 31); err != nil && bad == nil {
		if u, err = h.byID(name); err != nil {
			if n == 0 {
				return directory.Account{}, nil
			}
			return directory.Account{UID: uint32(n), GID: noGroup}, nil
		}
	}
	if err != nil {
		return directory.Account{}, fmt.Errorf("invalid value %q for --account: no user has this name or number\nhint: getent passwd lists the users", name)
	}
	id, ok := parse(u.Uid, u.Gid)
	if !ok {
		return directory.Account{}, fmt.Errorf("--account %s has the ids %q and %q: must be numbers", name, u.Uid, u.Gid)
	}
	return directory.Account{UID: uint32(id.UID), GID: uint32(id.GID), Groups: h.groupsOf(u)}, nil
}

// noGroup is a group that owns no files, by convention of every distribution.
const noGroup = 65534

func (h accounts) groupsOf(u *user.User) []uint32 {
	names, err := h.groups(u)
	if err != nil {
		return nil
	}
	var list []uint32
	for _, name := range names {
		if n, err := strconv.ParseUint(name, 10, 31); err == nil && name != u.Gid && len(list) < directory.MaxGroups {
			list = append(list, uint32(n))
		}
	}
	return list
}
