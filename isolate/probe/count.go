package probe

import (
	"fmt"
	"time"

	"corral/isolate/host"
	"corral/job"
)

// A count counts probes.
type count struct {
	busy  int // in progress, including stuck
	stuck int // abandoned
}

// acquire counts a probe of the user. At the maximum it waits, for at most p.Patience, until another probe ends, unless
// all of them are stuck: then it refuses at once.
func (p *Prober) acquire(user uint32) error {
	var over <-chan time.Time
	for {
		p.mu.Lock()
		mine := p.of(user)
		if mine.busy < MaxUser && (p.all.busy < MaxAll || mine.stuck == 0 && p.all.busy-p.all.stuck < MaxAll) {
			mine.busy++
			p.all.busy++
			p.mu.Unlock()
			return nil
		}
		stuck, hopeless := mine.stuck, mine.stuck >= MaxUser || mine.stuck > 0 && p.all.stuck >= MaxAll
		p.forgetUser(user)
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.mu.Unlock()
		if hopeless {
			return tooManyProbes(stuck)
		}
		if over == nil {
			timer := time.NewTimer(p.Patience)
			defer timer.Stop()
			over = timer.C
		}
		select {
		case <-changed:
		case <-over:
			return tooManyProbes(stuck)
		case <-p.ctx.Done():
			return host.ErrEnding
		}
	}
}

// release ends a probe.
func (p *Prober) release(user uint32) { p.add(user, -1, 0) }

// add adds to the counts of a user and of all, beyond the maximum if need be.
func (p *Prober) add(user uint32, busy, stuck int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range []*count{&p.all, p.of(user)} {
		c.busy += busy
		c.stuck += stuck
	}
	p.forgetUser(user)
	if p.changed != nil && busy < 0 {
		close(p.changed)
		p.changed = nil
	}
}

// forgetUser removes the count of a user without probes. The caller holds p.mu.
func (p *Prober) forgetUser(user uint32) {
	if p.users[user].busy == 0 {
		delete(p.users, user)
	}
}

// of returns the count of a user, adding it if necessary. The caller holds p.mu.
func (p *Prober) of(user uint32) *count {
	if p.users[user] == nil {
		if p.users == nil {
			p.users = map[uint32]*count{}
		}
		p.users[user] = &count{}
	}
	return p.users[user]
}

// A StalledError refuses a request because the file system of a client's directory did not answer in time. Unlike
// other errors of a probe it may be sent to the client: it reveals nothing that the client cannot see itself.
type StalledError struct{ *job.Refusal }

func (e StalledError) Unwrap() error { return e.Refusal }

func tooManyProbes(stuck int) error {
	return StalledError{&job.Refusal{
		Step:    "repo",
		Message: fmt.Sprintf("too many probes in progress: the file systems of %d directories that you requested have not answered", stuck),
		Hint:    "stop or unmount the FUSE or network file system that hangs, then try again",
	}}
}
