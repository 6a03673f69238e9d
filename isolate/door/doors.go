package door

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"corral/cgroup"
	"corral/egress/control"
	"corral/internal/fault"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// Program is the name of the program that answers for hosts.
const Program = "corral-egress"

const (
	// idleTime is how long a process without doors is kept for the next job.
	idleTime = time.Minute
	// maxUsers is the maximum number of processes: users whose jobs have doors at once.
	maxUsers = host.JobUIDs
)

// Config has the parts of the supervisor that doors need.
type Config struct {
	Instance *host.Instance
	Program  func() (*os.File, error) // opens corral-egress
	// Filter opens the compiled filter of its system calls, with those that a store needs or without.
	Filter func(store bool) (*os.File, error)
	// Keep returns how many bytes of packages the process of a user keeps at present; 0: none. nil: nobody's does.
	Keep func(payer uint32) int64
	// Store opens the directory for at most keep bytes of packages, and gives it to a user id. The process may keep size bytes: more does
	// not fit into the directory, whatever it tries.
	Store func(payer, uid uint32, keep int64) (dir *os.File, size int64, err error)
	// Connections is how many jobs may have at once; zero fields are the defaults.
	Connections Connections
	Log         *slog.Logger  // gets, at the level of information, the lines that it logs about connections, as far as their rate allows
	Patience    time.Duration // timeout of each answer of corral-egress, which depends on no network; 0 is five seconds
	Pause       time.Duration // before a process that ended is started again, doubled after each, up to half of Patience; 0 is 100 ms
}

// Doors are the doors of a supervisor. New makes them, Close ends them.
type Doors struct {
	Config
	work sync.WaitGroup // the goroutines of egresses

	mu      fault.Mutex
	ended   bool
	program *os.File           // guarded by mu until set: nil before the first door
	filters [2]*os.File        // likewise: without and with those of a store; the latter may be nil
	groups  *cgroup.Jail       // likewise
	base    uint32             // likewise: the first of the processes' user ids
	taken   map[uint32]bool    // guarded by mu: user ids of processes
	users   map[uint32]*egress // guarded by mu: by payer
	last    uint64             // guarded by mu: number of the last door
}

// New returns Doors without an open door. It starts no process and opens no file before the first Open.
func New(c Config) *Doors {
	if c.Patience == 0 {
		c.Patience = 5 * time.Second
	}
	if c.Pause == 0 {
		c.Pause = 100 * time.Millisecond
	}
	c.Connections.Complete()
	return &Doors{Config: c, users: map[uint32]*egress{}, taken: map[uint32]bool{}}
}

// An Opening is a request for a door.
type Opening struct {
	Payer uint32 // the user whose process answers
	Name  string // of the job or session, for the log
	// Request is the id of the job's request, for the log; "" for a session, whose jobs share the door.
	Request string
	// Access returns the rules that apply at present, passed on unread; without rules, nothing is allowed. It is called for a
	// new door and by Update, and must not block.
	Access func() control.Access
	Ask    string // how the job narrows the rules; opaque
	// Placeholder stands for secrets in the job; "": it has none.
	Placeholder string
	// Authority is the one that the job trusts; nil: none.
	Authority *control.Authority
	Sockets   []*os.File // see inside.DoorSockets; they must stay open until the door is closed
}

// Open opens a door. The caller must call Close. The error is a job.Refusal if the rules do not allow what is asked for.
func (d *Doors) Open(o Opening) (*Door, error) {
	e, err := d.egressOf(o.Payer)
	if err != nil {
		return nil, err
	}
	door := &Door{egress: e, opening: o, answer: make(chan answer, 1)}
	fault.With(&d.mu, func() {
		d.last++
		door.number = d.last
	})
	why, err := e.add(door)
	if err == nil && why != "" {
		message, hint, _ := strings.Cut(why, "\nhint: ")
		err = &job.Refusal{Step: "network", Message: message, Hint: cmp.Or(hint, "the operator sees the rules with: corral network list")}
	}
	if err != nil {
		e.remove(door)
		return nil, err
	}
	return door, nil
}

// egressOf returns the egress of a user, with one more use.
func (d *Doors) egressOf(payer uint32) (*egress, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return nil, host.ErrEnding
	}
	if e := d.users[payer]; e != nil {
		e.uses++
		return e, nil
	}
	if err := d.prepare(); err != nil {
		return nil, fmt.Errorf("network access: %w", err)
	}
	if len(d.taken) >= maxUsers { // with those that are ending
		return nil, &job.Refusal{
			Step: "network", Message: fmt.Sprintf("jobs of %d users reach hosts, which is the maximum", maxUsers),
			Hint: "try again when a job has ended",
		}
	}
	e := newEgress(d, payer, d.freeUID())
	e.uses = 1
	d.users[payer] = e
	d.work.Go(e.run)
	return e, nil
}

// prepare makes what all processes share, when the first one starts. The caller holds d.mu.
func (d *Doors) prepare() (err error) {
	if d.groups != nil {
		return nil
	}
	if d.program == nil {
		if d.program, err = d.Program(); err != nil {
			return err
		}
	}
	for i, store := range []bool{false, true} {
		if d.filters[i] != nil || store && d.Keep == nil {
			continue
		}
		if d.filters[i], err = d.Filter(store); err != nil {
			return err
		}
	}
	if d.base, err = d.Instance.TakeUIDs(); err != nil {
		return err
	}
	groups, err := d.Instance.Groups.Jail("egress", int(d.base))
	if err != nil {
		d.Instance.ReleaseUIDs(d.base)
		return err
	}
	if err := groups.WithoutContainer(); err != nil {
		d.Instance.ReleaseUIDs(d.base)
		return errors.Join(err, groups.Remove())
	}
	d.groups = groups
	return nil
}

// freeUID returns an id that no process has. The caller holds d.mu.
func (d *Doors) freeUID() uint32 {
	uid := d.base + 1
	for d.taken[uid] {
		uid++
	}
	d.taken[uid] = true
	return uid
}

// Update applies changed rules to all open doors: those that Opening.Access returns now. What they no longer allow ends.
func (d *Doors) Update() {
	all := fault.Get(&d.mu, func() []*egress { return slices.Collect(maps.Values(d.users)) })
	var work sync.WaitGroup // one that reads slowly does not delay what the others are told
	for _, e := range all {
		work.Go(func() { fault.Do(d.Log, "rules of a user's doors", e.update, "uid", e.payer) })
	}
	work.Wait()
}

// Close ends all doors and processes.
func (d *Doors) Close() error {
	fault.With(&d.mu, func() {
		d.ended = true
		for _, e := range d.users {
			e.stop()
		}
	})
	d.work.Wait()
	wire.CloseAll([]*os.File{d.program, d.filters[0], d.filters[1]})
	if d.groups == nil {
		return nil
	}
	err := d.groups.Remove()
	if err == nil {
		d.Instance.ReleaseUIDs(d.base)
	}
	return err
}

// forget makes the user id of an egress available: its last process is gone.
func (d *Doors) forget(e *egress) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.taken, e.uid)
}

func (d *Doors) report(what string, err error) {
	if err != nil {
		d.Log.Error(Program+": "+what, "error", err)
	}
}

// A Door answers for hosts in one network namespace.
type Door struct {
	egress  *egress
	number  uint64
	opening Opening

	// The fields below are guarded by egress.mu.
	access control.Access // that was sent last
	wants  control.Kind   // the reply that is awaited; 0: none
	again  bool           // the reply will be to an Open after a restart: no goroutine waits for it
	answer chan answer
}

// An answer is what the awaited reply to a message about a door says, or why there is none.
type answer struct {
	text string
	err  error
}

// Report returns what jobs reached through the door since it was opened or since the last call, as a text for the client of
// the supervisor: JSON of control.Summary, not read here. It is control.Lost if corral-egress does not answer, and "" if another job
// is told.
func (door *Door) Report() string { return door.egress.summary(door, control.KindReport) }

// Close closes the door with all connections through it, and returns the last report.
func (door *Door) Close() string {
	text := door.egress.summary(door, control.KindClose)
	door.egress.remove(door)
	return text
}
