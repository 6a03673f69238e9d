package embed

import (
	"errors"
	"os/user"
	"slices"
	"strings"
	"testing"

	"corral/internal/directory"
)

// TestAccount: the account is that of sudo, the named one, or root, and conflicts are errors.
func TestAccount(t *testing.T) {
	users := map[string]*user.User{
		"alice": {Username: "alice", Uid: "1000", Gid: "1001"}, "root": {Username: "root", Uid: "0", Gid: "0"},
		"broken": {Username: "broken", Uid: "S-1", Gid: "x"},
	}
	host := accounts{
		byName: func(name string) (*user.User, error) {
			if u := users[name]; u != nil {
				return u, nil
			}
			return nil, user.UnknownUserError(name)
		},
		byID: func(id string) (*user.User, error) {
			for _, u := range users {
				if u.Uid == id {
					return u, nil
				}
			}
			return nil, errors.New("unknown")
		},
		groups: func(u *user.User) ([]string, error) {
			if u.Username == "alice" {
				return []string{"1001", "4", "27", "no number"}, nil
			}
			return nil, errors.New("no groups")
		},
	}
	for _, tt := range []struct {
		name     string
		uid, gid string // of SUDO_
		named    string
		want     directory.Account
		err      string
	}{
		{"root", "", "", "", directory.Account{}, ""},
		{"root by sudo", "0", "0", "", directory.Account{}, ""},
		{"sudo", "1000", "1001", "", directory.Account{UID: 1000, GID: 1001, Groups: []uint32{4, 27}}, ""},
		{"sudo of a user without an account", "2000", "2001", "", directory.Account{UID: 2000, GID: 2001}, ""},
		{"half of sudo", "1000", "", "", directory.Account{}, "SUDO_GID"},
		{"no number", "1000x", "1", "", directory.Account{}, "SUDO_UID"},
		{"negative", "-1", "1", "", directory.Account{}, "SUDO_UID"},
		{"root, written otherwise", "00", "0", "", directory.Account{}, "SUDO_UID"},
		{"named", "", "", "alice", directory.Account{UID: 1000, GID: 1001, Groups: []uint32{4, 27}}, ""},
		{"named by number", "", "", "1000", directory.Account{UID: 1000, GID: 1001, Groups: []uint32{4, 27}}, ""},
		{"a number without an account", "", "", "2000", directory.Account{UID: 2000, GID: noGroup}, ""},
		{"root named", "", "", "root", directory.Account{}, ""},
		{"root by number", "", "", "0", directory.Account{}, ""},
		{"an unknown name", "", "", "bob", directory.Account{}, "\"bob\" for --account"},
		{"without numbers", "", "", "broken", directory.Account{}, "has the ids"},
		{"the user of sudo, named", "1000", "1001", "alice", directory.Account{UID: 1000, GID: 1001, Groups: []uint32{4, 27}}, ""},
		{"root, named through sudo", "1000", "1001", "root", directory.Account{}, "sudo was called by user 1000"},
		{"another, named through sudo", "1000", "1001", "2000", directory.Account{}, "sudo was called by user 1000"},
		{"named, and sudo by root", "0", "0", "alice", directory.Account{UID: 1000, GID: 1001, Groups: []uint32{4, 27}}, ""},
	} {
		getenv := func(name string) string { return map[string]string{"SUDO_UID": tt.uid, "SUDO_GID": tt.gid}[name] }
		got, err := account(tt.named, getenv, host)
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %+v, %v, want an error with %q", tt.name, got, err, tt.err)
			}
		case err != nil || got.UID != tt.want.UID || got.GID != tt.want.GID || !slices.Equal(got.Groups, tt.want.Groups):
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
}
