package session

import "corral/job"

// Overlay returns the id of the session that a client has with an overlay over the repository at a path, or of the layer that
// is kept of it; "" if there is none.
func (k *Manager) Overlay(principal, client, repo string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	is := func(id key) bool {
		return id.principal == principal && id.client == client && id.repo == repo && id.workspace == job.Overlay && !id.root
	}
	for id, s := range k.all {
		if is(id) && isClosed(s.opened) && s.err == nil {
			return s.id
		}
	}
	for id, before := range k.former {
		if is(id) && before.layer != "" {
			return before.layer
		}
	}
	return ""
}
