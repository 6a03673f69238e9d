// Package users looks up the names of users, for people.
package users

import (
	"os/user"
	"strconv"
)

// Names remembers the names of users that were looked up. The zero value is ready to use. It is not safe for concurrent use.
type Names struct{ known map[uint32]string }

// Of returns the name of a user, or the number of one without a name.
func (n *Names) Of(uid uint32) string {
	if name, known := n.known[uid]; known {
		return name
	}
	name := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	if n.known == nil {
		n.known = map[uint32]string{}
	}
	n.known[uid] = name
	return name
}
