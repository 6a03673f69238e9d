package run

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	safe "corral/internal/text"
	"corral/mcp/tool"
)

// An Owner is the client session that a job belongs to. Other sessions cannot find out that the job exists.
type Owner struct{ Principal, Session string }

// OwnerOf returns the session of a call.
func OwnerOf(c tool.Caller) Owner { return Owner{c.Principal, c.Session} }

// A session's last jobs stay listed after their end, for a limited time.
const (
	MaxEnded  = 64
	endedLife = time.Hour
)

// Processes holds the background jobs, running or ended and still listed.
type Processes struct {
	life    context.Context // of all processes
	end     context.CancelFunc
	running sync.WaitGroup

	mu  sync.Mutex
	all map[Owner][]*Process // guarded by mu: oldest first
}

// NewProcesses returns an empty list. The owner must call Close.
func NewProcesses() *Processes {
	l := &Processes{all: map[Owner][]*Process{}}
	l.life, l.end = context.WithCancel(context.Background())
	return l
}

// start runs a process in a goroutine of its own; cancel is called when the list is closed.
func (l *Processes) start(cancel, begin func()) {
	stop := context.AfterFunc(l.life, cancel)
	l.running.Go(func() {
		defer stop()
		begin()
	})
}

// Close ends all processes and waits for them.
func (l *Processes) Close() {
	l.end()
	l.running.Wait()
}

// add lists p, unless it is listed, or its principal or all principals together have their maximum of running jobs.
func (l *Processes) add(p *Process) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tidy()
	owner := OwnerOf(p.job.Caller)
	if slices.Contains(l.all[owner], p) {
		return nil
	}
	mine, total := 0, 0
	for o, list := range l.all {
		n := 0
		for _, one := range list {
			if one.endedAt().IsZero() {
				n++
			}
		}
		if total += n; o.Principal == owner.Principal {
			mine += n
		}
	}
	if mine >= p.host.Max {
		return tooMany(fmt.Sprintf("background: %d background jobs are running already, the maximum of one principal", mine))
	}
	if p.host.MaxAll > 0 && total >= p.host.MaxAll {
		return tooMany("background: the server is running its maximum of background jobs, including those of other principals")
	}
	l.all[owner] = append(l.all[owner], p)
	return nil
}

func tooMany(message string) error {
	return &tool.Error{
		Code: tool.CodeDenied, Message: message,
		Details: map[string]any{"argument": "background", "hint": "end one with ctx_job(action: \"signal\"), or wait until one ends"},
	}
}

// tidy removes jobs that ended more than endedLife ago, and an owner's oldest ended ones above MaxEnded. The caller holds mu.
func (l *Processes) tidy() {
	for o, list := range l.all {
		ended := 0
		for _, p := range list {
			if !p.endedAt().IsZero() {
				ended++
			}
		}
		list = slices.DeleteFunc(list, func(p *Process) bool {
			at := p.endedAt()
			if at.IsZero() || time.Since(at) < endedLife && ended <= MaxEnded {
				return false
			}
			ended--
			return true
		})
		if l.all[o] = list; len(list) == 0 {
			delete(l.all, o)
		}
	}
}

func (l *Processes) forget(p *Process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := OwnerOf(p.job.Caller)
	list := slices.DeleteFunc(l.all[o], func(one *Process) bool { return one == p })
	if l.all[o] = list; len(list) == 0 {
		delete(l.all, o)
	}
}

// Of returns the jobs of an owner, oldest first.
func (l *Processes) Of(o Owner) []*Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tidy()
	return slices.Clone(l.all[o])
}

// Find returns the owner's job with this id. The error is an *Error with code NOT_FOUND.
func (l *Processes) Find(o Owner, id string) (*Process, error) {
	all := l.Of(o)
	if n := slices.IndexFunc(all, func(p *Process) bool { return p.id == id }); n >= 0 {
		return all[n], nil
	}
	return nil, &tool.Error{Code: tool.CodeNotFound, Message: "id: there is no job " + safe.Line(id, tool.MaxShown)}
}

// End ends the jobs of a session, waits for them, and removes them.
func (l *Processes) End(o Owner) {
	l.mu.Lock()
	list := l.all[o]
	delete(l.all, o)
	l.mu.Unlock()
	for _, p := range list {
		p.cancel()
	}
	for _, p := range list {
		<-p.done
	}
}

// endedAt returns when the process ended, or the zero time while it runs.
func (p *Process) endedAt() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}
