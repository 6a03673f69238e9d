package isolate

import (
	"fmt"

	"corral/job"
)

const (
	// maxWorking bounds the connections of all users together that may start jobs and sessions. A user's bound is server.maxPerUser.
	maxWorking = 2048
	// maxUserAsking bounds a user's connections beyond these bounds. They can do all but start jobs and sessions: a user with as many jobs
	// as there may be must be able to list and end them.
	maxUserAsking = 64
	maxAsking     = 512 // of all users together

	// maxConnections bounds the connections of all users together.
	maxConnections = maxWorking + maxAsking
)

// places are numbers of connections.
type places struct {
	working int // may start jobs and sessions
	asking  int // may not
}

// A place is what a connection counts as.
type place struct {
	s       *server
	uid     uint32
	working bool // guarded by s.mu
}

// connect returns the place of a new connection of a user, or nil if there are too many.
func (s *server) connect(uid uint32) *place {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &place{s, uid, s.roomToWork(uid)}
	room := p.working || s.perUser[uid].asking < maxUserAsking && s.all.asking < maxAsking
	if uid != 0 && !room {
		return nil
	}
	p.count(1)
	return p
}

// roomToWork reports whether one more connection of a user may start jobs. The caller holds s.mu.
func (s *server) roomToWork(uid uint32) bool {
	return uid == 0 || s.perUser[uid].working < s.maxPerUser && s.all.working < maxWorking
}

// count changes the numbers of connections by one. The caller holds s.mu.
func (p *place) count(by int) {
	mine := p.s.perUser[p.uid]
	for _, n := range []*places{&mine, &p.s.all} {
		if p.working {
			n.working += by
		} else {
			n.asking += by
		}
	}
	if p.s.perUser[p.uid] = mine; mine == (places{}) {
		delete(p.s.perUser, p.uid)
	}
}

// leave ends a connection.
func (p *place) leave() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.count(-1)
}

// forJobs makes the connection one that may start jobs and sessions, or refuses that. A nil place may.
func (p *place) forJobs() error {
	if p == nil {
		return nil
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.working {
		return nil
	}
	if mine, most := p.s.perUser[p.uid].working, p.s.maxPerUser; mine >= most {
		return &job.Refusal{
			Step: "request", Message: fmt.Sprintf("%d programs of yours are connected for jobs, and the maximum per user is %d (max_jobs_per_user)",
				mine, most),
			Hint: "try again when one has ended: corral ps",
		}
	}
	if !p.s.roomToWork(p.uid) {
		return &job.Refusal{
			Step: "request", Message: fmt.Sprintf("%d programs of all users are connected for jobs, which is the maximum", maxWorking),
			Hint: "try again when one has ended",
		}
	}
	p.count(-1)
	p.working = true
	p.count(1)
	return nil
}
