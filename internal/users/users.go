// Package users looks up users by their names and numbers.
package users

import (
	"errors"
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

// Parse returns the number of a user, given the user's name or number. A number need not have a name.
func Parse(s string) (uint32, error) {
	id := s
	if u, err := user.Lookup(s); err == nil {
		id = u.Uid
	}
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return 0, errors.New("no such user: must be the name or the number of one")
	}
	return uint32(n), nil
}
