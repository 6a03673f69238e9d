package cell

import "corral/isolate/admit"

// A jailKey identifies a jail: jobs with equal keys share one.
type jailKey struct {
	admit.Identity
	common  admit.Identity // zero: the repository is not a worktree
	profile string
	session string // "": the jail is shared by jobs without a session
	door    bool   // jobs have a door
}

// keyOf returns the key of the jail for jobs in r, with doors or without. session is "" for jobs without a session.
func keyOf(r *admit.Repo, profile, session string, door bool) jailKey {
	key := jailKey{Identity: r.Identity(), profile: profile, session: session, door: door}
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
