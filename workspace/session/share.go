package session

import (
	"context"
	"fmt"
	"maps"

	"corral/job"
)

// shareToKeep refuses another session with an overlay to a principal whose sessions have left so many layers that others
// would find no room. The supervisor counts the layers of all principals together, as they are one user's, and refuses
// every overlay at job.MaxKeptLayers until somebody applies or discards some.
//
// A principal may have three times as many layers as are free: at most three quarters of all, and always fewer than what
// it takes to use them up. Layers of an earlier run of the server have no known principal; they only make others fewer.
func (k *Manager) shareToKeep(ctx context.Context, s *entry) error {
	if s.workspace != job.Overlay {
		return nil
	}
	before, some := k.known(s)
	if !some {
		return nil // a first layer is not refused here
	}
	list, err := k.o.Sessions.ListSessions(ctx)
	if err != nil {
		return nil //nolint:nilerr // the supervisor answers for itself when it opens the session
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

// known returns the ids of all kept layers whose principals are known, and reports whether the principal of s has one or
// another session that may leave one.
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

// forgetKept forgets the kept layers of ids that are not in list, which was made after ids.
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

// layers counts the kept layers of the principal of s, and those of all principals, which are in list. Other open sessions
// of the principal count as well: their layers will be kept if their jobs change something.
func (k *Manager) layers(s *entry, list []job.Session) (mine, all int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	open := map[string]bool{} // those that have reopened a kept layer count once
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
