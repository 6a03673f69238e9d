package tool

import (
	"slices"
	"sync"
)

// Defaults remembers which repository the calls of one session use that name none, so that a change of the configuration never
// moves a session to another repository unnoticed. The zero value remembers nothing. A nil *Defaults does nothing.
type Defaults struct {
	mu    sync.Mutex
	repos map[string]string // guarded by mu: repository ids by purpose; the number of purposes is fixed
}

// get returns the repository for a purpose, "" before the first call of set.
func (d *Defaults) get(purpose string) string {
	if d == nil {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.repos[purpose]
}

// set remembers id for a purpose, unless another call has set one meanwhile, and returns what is remembered.
func (d *Defaults) set(purpose, id string) string {
	if d == nil {
		return id
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.repos == nil {
		d.repos = map[string]string{}
	}
	if d.repos[purpose] == "" {
		d.repos[purpose] = id
	}
	return d.repos[purpose]
}

// remembered returns id, or an error if it is not one of served any more.
func (c Caller) remembered(served []string, id string) (string, error) {
	if slices.Contains(served, id) {
		return id, nil
	}
	return "", &Error{
		Code: CodeNotFound,
		Message: "Repository " + id + ", which this session has used, is not served any more: the operator has changed the configuration. " +
			"Name another repository, or open a new session",
		Details: map[string]any{"repositories": served[:min(len(served), maxNamed)]},
	}
}
