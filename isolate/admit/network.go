package admit

import (
	"bytes"
	"encoding/json"

	"corral/job"
)

// NetworkRules returns what the jobs of a repository may reach, as network.Encode writes it; nil is nothing. Nothing here reads it.
//
// A job in a worktree also reads the git directory, which another entry can be for. What that entry's jobs read must not
// leave by the rules of another, and rules cannot be combined without reading them: if they differ, there are none.
func (s *Served) NetworkRules(repo *Repo) json.RawMessage {
	rules := s.Network
	listed := false
	for _, r := range s.Entries {
		if r.Path != repo.Path {
			continue
		}
		if listed && !bytes.Equal(r.Network, rules) {
			return nil
		}
		rules, listed = r.Network, true
	}
	if repo.Common == nil {
		return rules
	}
	for _, r := range s.ofCommon(repo.Common.Path) {
		if !bytes.Equal(r.Network, rules) {
			return nil
		}
	}
	return rules
}

// CheckNetwork refuses a request for network access where the operator allows none. asked is job.Spec.Network.
func CheckNetwork(asked string) error {
	if asked == "" || asked == job.NoNetwork {
		return nil
	}
	return &job.Refusal{
		Step: "network", Message: "the operator allows no network access to the jobs of this repository",
		Hint: "ask the operator for network rules of the repository, or request no network access",
	}
}
