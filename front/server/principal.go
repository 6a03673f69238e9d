package server

import (
	"os"
	"os/user"
	"strconv"
)

// UserPrincipal returns the principal of this process's user, as it is in requests and in the audit log.
func UserPrincipal() string { return PrincipalOf(uint32(os.Getuid())) }

// PrincipalOf returns the principal of a user of this machine. The name is looked up by number: user.Current trusts
// $USER if the number has no entry.
func PrincipalOf(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil && u.Username != "" {
		return "user:" + u.Username
	}
	return "user:" + id
}
