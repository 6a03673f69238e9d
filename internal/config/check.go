package config

import (
	"path/filepath"
	"slices"

	"corral/internal/config/strict"
	"corral/internal/directory"
)

// checkSections checks the sections of a configuration file that its last decoded values are about.
func (l *loader) checkSections(root strict.Node) {
	if uids := root.At("uids"); uids.IsMapping() && uint64(l.UIDs.Base)+uint64(l.UIDs.Size) > maxUserID {
		uids.Failf("`uids`: base and size reach beyond %d, the last user id", maxUserID)
	}
	for name, profile := range l.Profiles {
		if set := root.At("profiles", name); set.IsMapping() {
			l.later = append(l.later, func() {
				settle(&profile.Defaults, in(set.At("defaults")), &profile.Ceilings, in(set.At("ceilings")))
				settle(&profile.Defaults, in(set.At("defaults")), &l.Ceilings, l.last("ceilings"))
			})
		}
	}
	if set := root.At("network"); set.IsMapping() {
		l.checkNetwork(set, &l.Network)
	}
	l.checkSecrets(root.At("secrets"))
	if set := root.At("exec_server", "full_access"); set.Present() {
		l.later = append(l.later, func() { l.checkProfile(set, l.ExecServer.FullAccess) })
	}
	if set := root.At("telemetry", "traces"); set.Present() {
		l.later = append(l.later, func() {
			if l.Telemetry.Traces == TracesFile && l.Telemetry.File == "" {
				set.Failf("`traces`: file needs a `file` to write to")
			}
		})
	}
}

// checkProfile checks that a profile exists.
func (l *loader) checkProfile(n strict.Node, name string) {
	known := builtin()
	for k := range l.Profiles {
		known = append(known, k)
	}
	slices.Sort(known)
	if name != "" && !slices.Contains(known, name) {
		n.Unknown("profile", name, known)
	}
}

// checkRepos checks the list of repositories and fills in ids.
func (l *loader) checkRepos() {
	for i, at := range l.repos {
		r := &l.Repos[i]
		if !at.IsMapping() || !l.completeRepo(at, r) {
			continue
		}
		if j := slices.IndexFunc(l.Repos[:i], func(o Repo) bool { return r.Path != "" && o.Path == r.Path }); j >= 0 {
			at.Failf("duplicate repository %q, first at %s", strict.Shorten(r.Path), l.repos[j].Place())
			continue
		}
		if j := slices.IndexFunc(l.Repos[:i], func(o Repo) bool { return r.ID != "" && o.ID == r.ID }); j >= 0 {
			at.Failf("duplicate id %q, first at %s: give %q or %q another `id`", strict.Shorten(r.ID), l.repos[j].Place(),
				strict.Shorten(l.Repos[j].Path), strict.Shorten(r.Path))
			continue
		}
		l.checkOverlap(i)
		if set := at.At("network"); set.IsMapping() && r.Network != nil {
			l.checkNetwork(set, r.Network)
		}
		repo := *r
		l.later = append(l.later, func() {
			l.checkProfile(at.At("profile"), repo.Profile)
			settle(&repo.Defaults, in(at.At("defaults")), &repo.Ceilings, in(at.At("ceilings")))
			settle(&repo.Defaults, in(at.At("defaults")), &l.Ceilings, l.last("ceilings"))
		})
	}
}

// completeRepo fills in the id of a repository. It returns false after an error.
func (l *loader) completeRepo(at entry, r *Repo) bool {
	if !at.At("path").Present() {
		at.Failf("missing `path` of a repository")
		return false
	}
	if r.Path != "" && !at.At("id").Present() {
		r.ID = filepath.Base(r.Path)
		if !goodID(r.ID) {
			at.Failf("missing `id` of repository %q: its base name does not have 1 to %d characters", strict.Shorten(r.Path), maxID)
			return false
		}
	}
	return true
}

// checkOverlap checks that the repository at index i and those before it do not lie in each other, if one of them has a file of
// its own. Where both are in one list, the supervisor serves neither and starts.
func (l *loader) checkOverlap(i int) {
	r := l.Repos[i]
	for j, o := range l.Repos[:i] {
		if (l.repos[i].own || l.repos[j].own) && r.Path != "" && o.Path != "" && directory.Overlap(r.Path, o.Path) {
			l.repos[i].Failf("repository %q overlaps %q at %s: jobs in one could replace the other",
				strict.Shorten(r.Path), strict.Shorten(o.Path), l.repos[j].Place())
		}
	}
}

// sharesToken reports whether one token, current or previous, is both p's and o's.
func (p Principal) sharesToken(o Principal) bool {
	none := [32]byte{}
	for _, mine := range [][32]byte{p.Hash, p.Previous} {
		if mine != none && (mine == o.Hash || mine == o.Previous) {
			return true
		}
	}
	return false
}

// checkPrincipals checks the list of principals.
func (l *loader) checkPrincipals() {
	for i, at := range l.principals {
		p := l.Principals[i]
		if !at.IsMapping() {
			continue
		}
		if missing := slices.IndexFunc([]string{"name", "token_sha256"}, func(key string) bool { return !at.At(key).Present() }); missing >= 0 {
			at.Failf("missing `%s` of a principal", []string{"name", "token_sha256"}[missing])
			continue
		}
		if (p.Previous == [32]byte{}) != (p.PreviousExpires == 0) {
			at.Failf("`previous_sha256` and `previous_expires` of a principal need each other")
		}
		if p.Previous == p.Hash && p.Hash != [32]byte{} {
			at.Failf("`previous_sha256` is `token_sha256`: the token would outlive `expires`")
		}
		for j, o := range l.Principals[:i] {
			switch {
			case p.Name != "" && o.Name == p.Name:
				at.Failf("duplicate principal %q, first at %s", strict.Shorten(p.Name), l.principals[j].Place())
			case p.sharesToken(o):
				at.Failf("principal %q has the token of %q at %s", strict.Shorten(p.Name), strict.Shorten(o.Name), l.principals[j].Place())
			}
		}
	}
}
