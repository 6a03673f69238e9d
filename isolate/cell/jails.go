package cell

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"corral/internal/fault"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/probe"
	"corral/job"
	"corral/rootfs"
)

// Config is the configuration of jails.
type Config struct {
	Context  context.Context // ends with the supervisor, and all waits for jails with it
	Instance *host.Instance
	Programs *host.Programs
	Tools    *host.Toolchains
	Userns   *host.UsernsMaker
	Probes   *probe.Prober
	Served   *admit.Current
	Log      *slog.Logger

	Defaults job.Limits    // limits of a waiting slot
	MaxJails int           // maximum of concurrent jails; guarded by Jails.mu
	Slots    int           // maximum of waiting slots per jail; negative is none
	MaxSlots int           // maximum of waiting slots in all jails; negative is none
	Idle     time.Duration // how long an unused jail is kept; guarded by Jails.mu
	EtcFiles []string      // further files and directories of the host's /etc that jobs see
	Switches
}

// Switches replace what is constant, for tests alone. A supervisor that is not tested has the zero value.
type Switches struct {
	Ending time.Duration // timeout for the exit of a slot's processes; 0 is host.SlotPatience
	Trim   time.Duration // how long a slot waits unneeded before it can be given up; 0 is trimInterval
	Only   func() bool   // reports whether no other supervisor runs on this machine; nil is host.OnlyInstance
	Survey *Survey       // what supervisors before have read of the host; nil: nothing
	Skip   uint64        // bit set of confinement steps and measures to leave out, see inside.Step, to show what a step prevents
}

// A Survey is what was read of the host for jails, and is used for the next ones as long as the host is unchanged. Supervisors in one
// process can share it. The zero Survey is empty and ready for use.
type Survey struct {
	hidden host.HiddenPaths
	etc    rootfs.Etc
}

// A Jails is the jails of a supervisor.
type Jails struct {
	Config
	roots     *roots
	ownSurvey bool              // Survey is not shared
	filters   map[string]filter // by profile
	windows   liveWindows
	waiting   atomic.Int64 // slots of all jails that wait or are being made to wait
	mounts    host.Mounts
	began     time.Time    // when New was called
	jailIDs   atomic.Bool  // the host permits jobs no user namespace: see plainSlot
	live      atomic.Int64 // jobs between JobBegins and JobEnds
	lastEnd   atomic.Int64 // when the last job ended, in nanoseconds since began

	mu    fault.Mutex
	all   map[jailKey]*Jail // guarded by mu
	ended bool              // guarded by mu: no jail is built any more
	work  sync.WaitGroup    // lifecycles of jails, and writeAhead; incremented under mu
}

// New compiles the system call filters. The caller must call End and Close.
func New(c Config) (*Jails, error) {
	c.Ending, c.Trim = cmp.Or(c.Ending, host.SlotPatience), cmp.Or(c.Trim, trimInterval)
	if c.Only == nil {
		c.Only = host.OnlyInstance
	}
	s := &Jails{Config: c, ownSurvey: c.Survey == nil, all: map[jailKey]*Jail{}, began: time.Now()}
	if s.ownSurvey {
		s.Survey = &Survey{}
	}
	var err error
	if s.filters, err = compiled(); err != nil {
		return nil, err
	}
	s.roots = newRoots(c.Tools, c.EtcFiles, c.Log, &s.Survey.etc, s.begin, s.work.Done, s.live.Load)
	return s, nil
}

// Enter returns the jail for r and profile whose jobs have this network, building it if necessary. It takes over r. The caller
// must call Leave.
func (s *Jails) Enter(peer host.Peer, r *admit.Repo, profile string, n Network) (*Jail, error) {
	j, err := s.find(peer, r, profile, n)
	if err != nil || j.repo != r {
		r.Close()
	}
	if err != nil {
		return nil, err
	}
	<-j.built
	if j.failure != nil {
		j.Leave()
		return nil, j.failure
	}
	return j, nil
}

// find returns the jail for r, with one more use. If there is none, it starts to build one, which takes over r.
func (s *Jails) find(peer host.Peer, r *admit.Repo, profile string, n Network) (*Jail, error) {
	key := keyOf(peer.Payer(), r, profile, "", n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, host.ErrEnding
	}
	if j := s.all[key]; j != nil && j.use() {
		return j, nil
	}
	if err := s.roomForJail(peer); err != nil {
		return nil, err
	}
	j := s.newJail(key, r, nil, n.Authority)
	s.all[key] = j
	s.work.Add(1)
	go j.lifecycle()
	return j, nil
}

// roomForJail refuses another jail if there are too many, in all or of this user, and no unused one can be evicted. A user may have
// a quarter of them whatever the others have, and more as long as a quarter is left to others, as of the disk.
// The caller holds s.mu.
func (s *Jails) roomForJail(peer host.Peer) error {
	mine := 0
	for _, j := range s.all {
		if j.key.payer == peer.Payer() {
			mine++
		}
	}
	part := max(s.MaxJails/4, 1)
	tooMany := len(s.all) >= s.MaxJails
	tooManyMine := peer.UID != 0 && mine >= part && len(s.all) >= s.MaxJails-part
	if !tooMany && !tooManyMine {
		return nil
	}
	for _, j := range s.all {
		if (j.key.payer == peer.Payer() || !tooManyMine) && j.dropUnused() {
			return nil
		}
	}
	return &job.Refusal{
		Step: "jail", Message: fmt.Sprintf("too many jails are in use: %d in all, %d of them yours", len(s.all), mine),
		Hint: "end a session or a job, or have the operator raise max_jails",
	}
}

// StartFor starts to build a jail for a session, and takes over r unless it returns an error. It calls admit when there
// is room for the jail, with the jails locked: if that returns an error, no jail is built.
func (s *Jails) StartFor(t *Session, peer host.Peer, r *admit.Repo, profile string, admit func(*Jail) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return host.ErrEnding
	}
	if err := s.roomForJail(peer); err != nil {
		return err
	}
	j := s.newJail(keyOf(peer.Payer(), r, profile, t.ID, t.Network), r, t, t.Authority)
	if err := admit(j); err != nil {
		return err
	}
	s.all[j.key] = j
	s.work.Add(1)
	go j.lifecycle()
	return nil
}

// begin registers a piece of work that close waits for. It returns false if the jails are already ending.
func (s *Jails) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.work.Add(1)
	return true
}

// reserveSlot counts one more waiting slot, and reports whether there may be one.
func (s *Jails) reserveSlot() bool {
	if s.waiting.Add(1) <= int64(s.MaxSlots) {
		return true
	}
	s.waiting.Add(-1)
	return false
}

// RootAhead schedules writing the root of the next jail, unless there is one.
func (s *Jails) RootAhead() { s.roots.schedule() }

// JobBegins records that a job was registered.
func (s *Jails) JobBegins() { s.live.Add(1) }

// JobEnds records that a job has ended.
func (s *Jails) JobEnds() {
	s.lastEnd.Store(int64(time.Since(s.began)))
	s.live.Add(-1)
}

// resting reports whether no job has run for restTime.
func (s *Jails) resting() bool {
	return s.live.Load() == 0 && time.Since(s.began)-time.Duration(s.lastEnd.Load()) >= restTime
}

// Adjust changes how many jails there may be at once, and how long one is kept that becomes unused from now on. Jails that
// exist stay.
func (s *Jails) Adjust(maxJails int, idle time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.MaxJails, s.Idle = maxJails, idle
	for _, j := range s.all {
		j.setIdle(idle)
	}
}

// Retire ends the jails whose repository keep returns false for: unused ones now, others when the jobs in them have
// ended. A jail of a session stays: it ends with the session.
func (s *Jails) Retire(keep func(*admit.Repo) bool) {
	for _, j := range s.list() {
		if j.session == nil && !keep(j.repo) {
			j.Retire()
		}
	}
}

// End keeps jails from being built.
func (s *Jails) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// Drop ends every jail and the jobs in it. It does not wait for that. End must have been called.
func (s *Jails) Drop() {
	for _, j := range s.list() {
		j.Drop()
	}
}

// list returns all jails.
func (s *Jails) list() []*Jail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.all))
}

// Close waits for the end of all jails, and releases what they shared. Drop must have been called.
func (s *Jails) Close() {
	s.work.Wait()
	s.roots.close()
	if s.ownSurvey {
		s.Survey.etc.Close()
	}
	s.mounts.Close()
}
