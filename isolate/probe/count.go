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

// A payer is whom a probe is charged to: a user, or a directory of the operator's configuration. Such a directory has a
// maximum of its own, because whoever controls its file system must not use up the probes of root, or of its owner.
type payer struct {
	uid   uint32
	entry string // path of the directory; "" for a user
}

func userOf(uid uint32) payer { return payer{uid: uid} }

// max returns the maximum of probes in progress.
func (b payer) max() int {
	if b.entry != "" {
		return maxEntry
	}
	return MaxUser
}

// acquire counts a probe of the payer. At the maximum it waits, for at most p.Patience, until another probe ends, unless
// all of them are stuck: then it refuses at once.
func (p *Prober) acquire(by payer) error {
	var over <-chan time.Time
	for {
		changed, stuck, hopeless := p.tryAcquire(by)
		if changed == nil {
			return nil
		}
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

// tryAcquire counts a probe of the payer. At the maximum it returns a channel that is closed when another probe ends, the number of the
// payer's stuck ones, and whether it is hopeless to wait.
func (p *Prober) tryAcquire(by payer) (changed <-chan struct{}, stuck int, hopeless bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	mine := p.of(by)
	if mine.busy < by.max() && (p.all.busy < MaxAll || mine.stuck == 0 && p.all.busy-p.all.stuck < MaxAll) {
		mine.busy++
		p.all.busy++
		return nil, 0, false
	}
	stuck, hopeless = mine.stuck, mine.stuck >= by.max() || mine.stuck > 0 && p.all.stuck >= MaxAll
	p.forget(by)
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed, stuck, hopeless
}

// release ends a probe.
func (p *Prober) release(by payer) { p.add(by, -1, 0) }

// add adds to the counts of a payer and of all, beyond the maximum if need be.
func (p *Prober) add(by payer, busy, stuck int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range []*count{&p.all, p.of(by)} {
		c.busy += busy
		c.stuck += stuck
	}
	p.forget(by)
	if p.changed != nil && busy < 0 {
		close(p.changed)
		p.changed = nil
	}
}

// forget removes the count of a payer without probes. The caller holds p.mu.
func (p *Prober) forget(by payer) {
	if p.payers[by].busy == 0 {
		delete(p.payers, by)
	}
}

// of returns the count of a payer, adding it if necessary. The caller holds p.mu.
func (p *Prober) of(by payer) *count {
	if p.payers[by] == nil {
		if p.payers == nil {
			p.payers = map[payer]*count{}
		}
		p.payers[by] = &count{}
	}
	return p.payers[by]
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
