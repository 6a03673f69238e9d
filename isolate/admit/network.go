package admit

import (
	"bytes"
	"encoding/json"
	"slices"

	"corral/isolate/host"
	"corral/job"
)

// noRules are rules that allow nothing.
var noRules = []byte("{}")

// NetworkRules returns what jobs of peer in a repository may reach, as network.Encode writes it; nil is nothing. Nothing here reads
// the rules.
//
// If some of several entries for a directory are for peer, these decide. A job in a worktree also reads the git directory, which
// another entry can be for. What that entry's jobs read must not leave by the rules of another, and rules cannot be combined without
// reading them: if they differ, there are none.
func (s *Served) NetworkRules(peer host.Peer, at Paths) json.RawMessage {
	var own, all []json.RawMessage
	for _, r := range s.Entries {
		if r.Path == at.Repo {
			all = append(all, r.Network)
			if r.isFor(peer) {
				own = append(own, r.Network)
			}
		}
	}
	switch {
	case len(own) > 0:
		all = own
	case len(all) == 0:
		all = append(all, s.Network)
	}
	if at.Common != "" {
		for _, r := range s.ofCommon(at.Common) {
			all = append(all, r.Network)
		}
	}
	rules := all[0]
	if bytes.Equal(rules, noRules) || slices.ContainsFunc(all, func(other json.RawMessage) bool { return !bytes.Equal(other, rules) }) {
		return nil
	}
	return rules
}

// RulesAgain is NetworkRules for a job or session that runs: nil if peer may not use the repository any more. The rules for
// directories without an entry are not for one whose entry was removed. repo is a Snapshot.
func (s *Served) RulesAgain(peer host.Peer, repo *Repo) json.RawMessage {
	if s.StillServes(peer, repo) != nil {
		return nil
	}
	return s.NetworkRules(peer, repo.Paths())
}

// Paths are those of a repository and of the git directory of which it is a worktree, or "".
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
