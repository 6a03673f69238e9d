package ctxtools

import (
	"fmt"
	"slices"
	"sync"
	"time"

	safe "corral/internal/text"
	"corral/mcp/tool"
)

// A session's last jobs stay listed after their end, for a limited time.
const (
	maxEnded  = 64
	endedLife = time.Hour
)

// jobs holds the background jobs, running or ended and still listed.
type jobs struct {
	mu  sync.Mutex
	all map[owner][]*background // guarded by mu: oldest first
}

// add adds b, unless its principal has limit running jobs or all principals together have all; all = 0 is unlimited.
func (j *jobs) add(b *background, limit, all int) error {
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
	if mine >= limit {
		return tooMany(fmt.Sprintf("background: %d background jobs are running already, the maximum of one principal", mine))
	}
	if all > 0 && total >= all {
		return tooMany("background: the server is running its maximum of background jobs, including those of other principals")
	}
	if j.all == nil {
		j.all = map[owner][]*background{}
	}
	o := ownerOf(b.caller)
	j.all[o] = append(j.all[o], b)
	return nil
}

func tooMany(message string) error {
	return &tool.Error{
		Code: tool.CodeDenied, Message: message,
		Details: map[string]any{"argument": "background", "hint": "end one with ctx_job(action: \"signal\"), or wait until one ends"},
	}
}

// tidy removes jobs that ended more than endedLife ago, and an owner's oldest ended ones above maxEnded. The caller holds mu.
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

// of returns the jobs of an owner, oldest first.
func (j *jobs) of(o owner) []*background {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tidy()
	return slices.Clone(j.all[o])
}

// find returns the owner's job with this id.
func (j *jobs) find(o owner, id string) (*background, error) {
	all := j.of(o)
	if n := slices.IndexFunc(all, func(b *background) bool { return b.id == id }); n >= 0 {
		return all[n], nil
	}
	return nil, &tool.Error{Code: tool.CodeNotFound, Message: "id: there is no job " + safe.Line(id, tool.MaxShown)}
}

// end ends the jobs of a session, waits for them, and removes them.
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
