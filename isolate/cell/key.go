package cell

import (
	"crypto/sha256"

	"corral/isolate/admit"
)

// A jailKey identifies a jail: jobs with equal keys share one.
type jailKey struct {
	admit.Identity
	payer     uint32         // the user to whom its jobs are charged
	common    admit.Identity // zero: the repository is not a worktree
	profile   string
	session   string            // "": the jail is shared by jobs without a session
	door      bool              // jobs have a door
	authority [sha256.Size]byte // digest of the authority that they trust; zero: none
}

// keyOf returns the key of the jail for jobs of payer in r with a network. session is "" for jobs without a session.
func keyOf(payer uint32, r *admit.Repo, profile, session string, n Network) jailKey {
	key := jailKey{Identity: r.Identity(), payer: payer, profile: profile, session: session, door: n.Door}
	if len(n.Authority) > 0 {
		key.authority = sha256.Sum256(n.Authority)
	}
	if r.Common != nil {
		key.common = r.Common.Identity()
	}
	return key
}

// overlaps reports whether jobs in jails with the two keys can have a file in common: one directory may be inside the
// other, also under another name.
func (k *jailKey) overlaps(l *jailKey) bool {
	return k.Dev == l.Dev || k.common.Path != "" || l.common.Path != ""
}
