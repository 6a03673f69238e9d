package admit

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"

	"corral/egress/control"
	"corral/isolate/host"
	"corral/job"
)

// noRules are rules that allow nothing.
var noRules = []byte("{}")

// Requests is what rules about requests need.
type Requests struct {
	Secrets []control.Secret
	// Variables are the names of environment variables in which jobs find the placeholder of the secrets.
	Variables []string
	// Keep is how many bytes of packages are kept for a user, if a rule is about a registry; 0: none.
	Keep int64
}

// Access is what jobs may reach. The zero Access is nothing.
type Access struct {
	Rules    json.RawMessage // as network.Encode writes them; nil: nothing
	Requests *Requests       // nil: no rule is about requests
}

// Control returns the access for corral-egress.
func (a Access) Control() control.Access {
	c := control.Access{Rules: a.Rules}
	if a.Requests != nil {
		c.Secrets = a.Requests.Secrets
	}
	return c
}

// Variables returns Requests.Variables.
func (a Access) Variables() []string {
	if a.Requests == nil {
		return nil
	}
	return a.Requests.Variables
}

func (r *Entry) access() Access { return Access{r.Network, r.Requests} }

// Access returns what jobs of peer in a repository may reach. Nothing here reads the rules.
//
// If some of several entries for a directory are for peer, these decide. A job in a worktree also reads the git directory, which
// another entry can be for. What that entry's jobs read must not leave by the rules of another, and rules cannot be combined without
// reading them: if they differ, there are none.
//
// The owner of a directory may have jobs there although its entries are for others. Their hosts and limits apply, but the secrets are
// not the owner's.
func (s *Served) Access(peer host.Peer, at Paths) Access {
	var own, all []Access
	for _, r := range s.Entries {
		if r.Path == at.Repo {
			all = append(all, r.access())
			if r.isFor(peer) {
				own = append(own, r.access())
			}
		}
	}
	others := len(own) == 0 && len(all) > 0
	switch {
	case len(own) > 0:
		all = own
	case len(all) == 0:
		all = append(all, Access{s.Network, s.Requests})
	}
	if at.Common != "" {
		for _, r := range s.ofCommon(at.Common) {
			all = append(all, r.access())
		}
	}
	first := all[0]
	if bytes.Equal(first.Rules, noRules) || slices.ContainsFunc(all, func(other Access) bool { return !reflect.DeepEqual(other, first) }) {
		return Access{}
	}
	if others && first.Requests != nil {
		first.Requests = new(Requests)
	}
	return first
}

// Keep returns how many bytes of packages are kept for a user: the most that the rules of one of the user's repositories say.
func (s *Served) Keep(uid uint32) int64 {
	most := int64(0)
	add := func(r *Requests) {
		if r != nil {
			most = max(most, r.Keep)
		}
	}
	add(s.Requests)
	for _, r := range s.Entries {
		if r.isFor(host.Peer{UID: uid}) {
			add(r.Requests)
		}
	}
	return most
}

// AccessAgain is Access for a job or session that runs: nothing if peer may not use the repository any more. The rules for
// directories without an entry are not for one whose entry was removed. repo is a Snapshot.
func (s *Served) AccessAgain(peer host.Peer, repo *Repo) Access {
	if s.StillServes(peer, repo) != nil {
		return Access{}
	}
	return s.Access(peer, repo.Paths())
}

// Paths are those of a repository and of the git directory that it is a worktree of, or "".
type Paths struct{ Repo, Common string }

// Paths returns the paths of the repository.
func (r *Repo) Paths() Paths {
	if r.Common == nil {
		return Paths{Repo: r.Path}
	}
	return Paths{r.Path, r.Common.Path}
}

// isFor reports whether peer may run jobs in the entry's directory.
func (r *Entry) isFor(peer host.Peer) bool {
	return r.UIDs == nil || peer.Embedded || slices.Contains(r.UIDs, peer.UID)
}

// CheckNetwork refuses a request for network access where the operator's rules allow none. asked is job.Spec.Network.
// Whether the rules allow what it says is decided by corral-egress, which reads both.
func CheckNetwork(asked string, rules json.RawMessage) error {
	if asked == "" || asked == job.NoNetwork || rules != nil {
		return nil
	}
	return &job.Refusal{
		Step: "network", Message: "the operator allows no network access to the jobs of this repository",
		Hint: "ask the operator for network rules of the repository, or request no network access",
	}
}
