package session

import (
	"context"
	"fmt"
	"maps"

	"corral/job"
)

// shareToKeep returns a *job.Refusal if s would be a session with an overlay of a principal that has used up its share of
// kept layers. All principals are one user for the supervisor, which refuses every overlay at job.MaxKeptLayers until some
// layers are applied or discarded: without shares, one principal could lock out the others.
//
// The share is three times the number of free layers, so a principal has at most three quarters of all, and the last free
// layer is never taken. Layers of an earlier run of the server have no known principal and only reduce the free ones.
func (k *Manager) shareToKeep(ctx context.Context, s *entry) error {
	if s.workspace != job.Overlay {
		return nil
	}
	before, some := k.known(s)
	if !some {
		return nil // a principal may always have one
	}
	list, err := k.o.Sessions.ListSessions(ctx)
	if err != nil {
		return nil //nolint:nilerr // opening the session will report the supervisor's error
	}
	k.forgetKept(before, list)
	mine, all := k.layers(s, list)
	if mine < 3*(job.MaxKeptLayers-all) {
		return nil
	}
	return &job.Refusal{
		Step: "session", Message: fmt.Sprintf("%d layers with changes of this client are kept, which is its share of %d", mine, job.MaxKeptLayers),
		Hint: "apply or discard some: corral session list, corral changes",
	}
}

// known returns the ids of all kept layers whose principals are known. some reports whether the principal of s has a kept
// layer, or another session that may leave one.
func (k *Manager) known(s *entry) (ids map[string]bool, some bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ids = map[string]bool{}
	for _, of := range k.kept {
		maps.Copy(ids, of)
	}
	return ids, len(k.kept[s.principal]) > 0 || len(k.others(s)) > 0
}

// others returns the sessions with an overlay of the principal of s, except s. mu must be held.
func (k *Manager) others(s *entry) []*entry {
	var list []*entry
	for _, other := range k.all {
		if other != s && other.workspace == job.Overlay && other.principal == s.principal {
			list = append(list, other)
		}
	}
	return list
}

// forgetKept removes the kept layers in ids that are missing in list, which must be newer than ids.
func (k *Manager) forgetKept(ids map[string]bool, list []job.Session) {
	for _, session := range list {
		delete(ids, session.ID)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for principal, of := range k.kept {
		maps.DeleteFunc(of, func(id string, _ bool) bool { return ids[id] })
		if len(of) == 0 {
			delete(k.kept, principal)
		}
	}
}

// layers counts the kept layers of the principal of s, and those of all principals in list. Other open sessions of the
// principal count, too, because their layers are kept if their jobs change something.
func (k *Manager) layers(s *entry, list []job.Session) (mine, all int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	open := map[string]bool{} // a session that has reopened a kept layer counts once
	for _, other := range k.others(s) {
		mine, all = mine+1, all+1
		if isClosed(other.opened) {
			open[other.id] = true
		}
	}
	for id := range k.kept[s.principal] {
		if !open[id] {
			mine++
		}
	}
	for _, session := range list {
		if session.Kept && !open[session.ID] {
			all++
		}
	}
	return mine, all
}

// noteKept records that a session of a principal has left a layer. mu must be held.
func (k *Manager) noteKept(principal, layer string) {
	if k.kept[principal] == nil {
		k.kept[principal] = map[string]bool{}
	}
	k.kept[principal][layer] = true
}
