package host

import (
	"testing"

	"corral/internal/directory"
)

// TestGroupFor: the group that jobs have outside is one that the client has, and never root's for other users.
func TestGroupFor(t *testing.T) {
	peer := func(gid uint32, groups ...uint32) Peer {
		return Peer{UID: owner, Account: &directory.Account{UID: owner, GID: gid, Groups: groups}}
	}
	for _, tt := range []struct {
		name           string
		peer           Peer
		uid, gid, want uint32
	}{
		{"primary", peer(1001), owner, 1001, 1001},
		{"supplementary", peer(1001, 7, 1500), owner, 1500, 1500},
		{"neither", peer(1001, 7), owner, 1500, 1001},
		{"root's, and not in it", peer(1001), owner, 0, 1001},
		{"root's, and in it", peer(1001, 0), owner, 0, 0},
		{"primary group of root", peer(0), owner, 1500, nogroup},
		{"served to somebody else", peer(1001), 1002, 1002, 1001},
		{"embedded, of an account", Peer{Embedded: true, Account: &directory.Account{UID: owner, GID: 1001}}, owner, 1500, 1001},
		{"root, and an owner nobody knows", Peer{}, 4_000_000, 1500, 1500},
		{"root, and root's group", Peer{}, 4_000_000, 0, nogroup},
		{"root itself", Peer{}, 0, 0, 0},
		{"root, in a group it is not in", Peer{}, 0, 4_000_000, 0},
	} {
		if got := tt.peer.GroupFor(tt.uid, tt.gid); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
