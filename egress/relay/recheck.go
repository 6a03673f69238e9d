package relay

import "context"

// An underway is a request that is being served.
type underway struct {
	method string
	paths  []string // see readings
	cancel context.CancelFunc
	secret *Secret // of the rule that allowed it; guarded by Relay.mu
}

// Recheck ends requests that are not allowed any more, or not with a secret. It is to be called after Inspection.Allow decides in
// another way.
func (r *Relay) Recheck() {
	r.mu.Lock() // there are none where no request is checked
	defer r.mu.Unlock()
	for u := range r.underway {
		secret, why := r.inspect.decide(u.method, u.paths)
		if why == "" && u.secret != nil && secret == nil {
			why = "the rules have changed: the request may have no secret any more"
		}
		if why != "" {
			r.inspect.Deny(&Denied{why})
			u.cancel()
		}
	}
}

// decide decides about a request, and has Recheck decide again, until forget is called.
func (r *Relay) decide(u *underway) *Denied {
	r.mu.Lock() // otherwise the rules could change before Recheck finds the request
	defer r.mu.Unlock()
	if r.underway == nil {
		r.underway = map[*underway]bool{}
	}
	r.underway[u] = true
	var why string
	if u.secret, why = r.inspect.decide(u.method, u.paths); why != "" {
		return &Denied{why}
	}
	return nil
}

func (r *Relay) forget(u *underway) {
	u.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.underway, u)
}

// decide returns why a request is not allowed, and the secret that it may have in all readings of its path.
func (i *Inspection) decide(method string, paths []string) (secret *Secret, why string) {
	for n, p := range paths {
		found, why := i.Allow(method, p)
		if why != "" {
			return nil, why
		}
		if n == 0 || found != nil && secret != nil && *found == *secret {
			secret = found
		} else {
			secret = nil // it is another one's if the server reads the path so
		}
	}
	return secret, ""
}
