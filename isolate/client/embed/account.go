package embed

import (
	"fmt"
	"os"
	"os/user"
	"strconv"

	"corral/internal/directory"
)

// Account returns whose directories root's front-end serves, and with whose rights they are opened: those of who asked sudo
// (SUDO_UID, SUDO_GID); for root without sudo, those of the account that is named, by its name or number; else root's own.
// So what a user cannot reach without sudo is not reached with it, and a sudoers entry for this program alone is no more
// than it says. It is an error to name another account than that of sudo.
//
// Groups are those of the host's own files, and what other name services know where the program is linked with a C library:
// an account in fewer groups reaches less, never more.
func Account(named string) (directory.Account, error) {
	return account(named, os.Getenv, accounts{user.Lookup, user.LookupId, (*user.User).GroupIds})
}

// accounts is what the host knows of its users.
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

// ofSudo is the account that sudo(8) names, or root if it names none or root itself.
func (h accounts) ofSudo(uid, gid string) (directory.Account, error) {
	if uid == "" || uid == "0" {
		return directory.Account{}, nil
	}
	id, ok := parse(uid, gid)
	if !ok || id.UID <= 0 {
		return directory.Account{}, fmt.Errorf("SUDO_UID is %q and SUDO_GID is %q: must be numbers of a user and a group\nhint: sudo sets both", uid, gid)
	}
	a := directory.Account{UID: uint32(id.UID), GID: uint32(id.GID)}
	if u, err := h.byID(uid); err == nil {
		a.Groups = h.groupsOf(u)
	}
	return a, nil
}

// named is the account of a user by name or number. One of whom only the number is known is in no group.
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
		return directory.Account{}, fmt.Errorf("--account %s: must be the name or the number of a user: %w", name, err)
	}
	id, ok := parse(u.Uid, u.Gid)
	if !ok {
		return directory.Account{}, fmt.Errorf("--account %s has the ids %q and %q", name, u.Uid, u.Gid)
	}
	return directory.Account{UID: uint32(id.UID), GID: uint32(id.GID), Groups: h.groupsOf(u)}, nil
}

// noGroup owns nothing, by the convention of every distribution.
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
