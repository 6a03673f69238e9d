package admit

import "corral/job"

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
