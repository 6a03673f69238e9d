package host

import "corral/internal/directory"

// A Peer is the process at the other end of a connection.
type Peer struct {
	UID uint32 // from SO_PEERCRED
	// Holder is the user to whom this peer's usage is charged if that is another user (see subordinates); 0 is none.
	Holder uint32
	// Account is the peer with its groups (SO_PEERGROUPS), or the account on whose behalf root's own front-end acts.
	// If nil, it is a user whose only group has the user's own number, or, for an embedded supervisor, root.
	Account *directory.Account
	// Embedded is set for the front-end that root started together with this supervisor, for the repositories that
	// root named.
	Embedded bool
	// Images lets an embedded front-end create and remove root file systems: root started it for that.
	Images bool
}

// Payer returns the user to whom the peer's usage is charged. Permissions are decided by UID alone.
func (p Peer) Payer() uint32 {
	if p.Holder != 0 {
		return p.Holder
	}
	return p.UID
}

// GroupFor returns the group that the peer's jobs have in a directory with owner uid and group gid: gid if the peer
// is in it, otherwise the peer's own. Otherwise a user would be in the group of every directory that the user was
// given, or can create below one with the set-group-ID bit. Root's own group is never used as the fallback.
func (p Peer) GroupFor(uid, gid uint32) uint32 {
	a := p.account()
	if a.UID == 0 { // root acts on behalf of the owner
		return ownerGroup(uid, gid)
	}
	switch {
	case a.Has(gid):
		return gid
	case a.GID == 0:
		return nogroup
	}
	return a.GID
}

// account returns the account whose rights the peer has.
func (p Peer) account() directory.Account {
	switch {
	case p.Account != nil:
		return *p.Account
	case p.Embedded:
		return directory.Account{}
	}
	return directory.Account{UID: p.UID, GID: p.UID}
}

// ownerGroup is GroupFor for a peer that is root: the directory's group if its owner is in it, otherwise the owner's
// own. If the host's files do not list the owner, any group is accepted except root's.
func ownerGroup(uid, gid uint32) uint32 {
	a, known := accounts.lookup(uid)
	switch {
	case known && !a.Has(gid):
		gid = a.GID
	case known || gid != 0:
		return gid
	}
	if gid == 0 && uid != 0 {
		return nogroup
	}
	return gid
}

// nogroup is a group that owns nothing, by convention of every distribution.
const nogroup = 65534

// MayManage reports whether a client may create and remove root file systems: root at a daemon's socket, or a
// front-end with its own supervisor that root started for this purpose. Other embedded front-ends may not; they are
// no longer root.
func (p Peer) MayManage() bool { return p.UID == 0 && !p.Embedded || p.Images }

// MayOperate reports whether a client may operate the supervisor: root at a daemon's socket. Root of a user namespace has
// another user id here (SO_PEERCRED).
func (p Peer) MayOperate() bool { return p.UID == 0 && !p.Embedded }

// Owns reports whether a pipe of user uid was created by the peer. It will belong to the job and can then be opened for the
// other direction too. The front-end of an embedded supervisor may have become any user except root.
func (p Peer) Owns(uid uint32) bool {
	if p.Embedded {
		return uid != 0
	}
	return uid == p.UID
}
