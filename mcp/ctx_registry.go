package mcp

import (
	"fmt"
	"slices"
	"sync"
	"time"

	safe "corral/internal/text"
)

// Of jobs that have ended, a session's last ones are remembered, for a time.
const (
	maxEnded  = 64
	endedLife = time.Hour
)

// An owner is whose a job is: others do not learn that there is one.
type owner struct{ principal, session string }

func ownerOf(c Caller) owner { return owner{c.Principal, c.Session} }

// jobs are those in the background, and those that have ended and are remembered.
type jobs struct {
	mu  sync.Mutex
	all map[owner][]*background // guarded by mu: the oldest first
}

// add takes b, unless its principal has most already that run, or all have all; 0 is no bound.
func (j *jobs) add(b *background, most, all int) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tidy()
	mine, total := 0, 0
	for o, list := range j.all {
		n := 0
		for _, one := range list {
			if one.runs() {
				n++
			}
		}
		if total += n; o.principal == b.caller.Principal {
			mine += n
		}
	}
	if mine >= most {
		return tooMany(fmt.Sprintf("background: %d jobs run in the background already, which is the most", mine))
	}
	if all > 0 && total >= all {
		return tooMany("background: the server runs as many jobs in the background as it may, those of others included")
	}
	if j.all == nil {
		j.all = map[owner][]*background{}
	}
	o := ownerOf(b.caller)
	j.all[o] = append(j.all[o], b)
	return nil
}

func tooMany(message string) error {
	return &Error{
		Code: CodeDenied, Message: message,
		Details: map[string]any{"argument": "background", "hint": "end one with ctx_job(action: \"signal\"), or wait for its end"},
	}
}

// tidy forgets those that ended long ago, and those that are too many. The caller holds mu.
func (j *jobs) tidy() {
	for o, list := range j.all {
		ended := 0
		for _, b := range list {
			if !b.runs() {
				ended++
			}
		}
		list = slices.DeleteFunc(list, func(b *background) bool {
			at := b.endedAt()
			if at.IsZero() || time.Since(at) < endedLife && ended <= maxEnded {
				return false
			}
			ended--
			return true
		})
		if j.all[o] = list; len(list) == 0 {
			delete(j.all, o)
		}
	}
}

func (j *jobs) forget(b *background) {
	j.mu.Lock()
	defer j.mu.Unlock()
	o := ownerOf(b.caller)
	list := slices.DeleteFunc(j.all[o], func(one *background) bool { return one == b })
	if j.all[o] = list; len(list) == 0 {
		delete(j.all, o)
	}
}

// of returns the jobs of an owner, the oldest first.
func (j *jobs) of(o owner) []*background {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tidy()
	return slices.Clone(j.all[o])
}

// find returns an owner's job.
func (j *jobs) find(o owner, id string) (*background, error) {
	all := j.of(o)
	if n := slices.IndexFunc(all, func(b *background) bool { return b.id == id }); n >= 0 {
		return all[n], nil
	}
	return nil, &Error{Code: CodeNotFound, Message: "id: there is no job " + safe.Line(id, maxShown)}
}

// end ends the jobs of a session, waits for them, and forgets them.
func (j *jobs) end(o owner) {
	j.mu.Lock()
	list := j.all[o]
	delete(j.all, o)
	j.mu.Unlock()
	for _, b := range list {
		b.cancel()
	}
	for _, b := range list {
		<-b.done
	}
}
