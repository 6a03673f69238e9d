package audit

import (
	"cmp"
	"time"

	"corral/job"
)

// body returns the line of a record from its event on: the first fields, and those that fields writes. of is the record that it
// closes, or 0.
func (w Who) body(event Event, of uint64, fields func(*encoder)) ([]byte, error) {
	if !IsName(w.Instance) || w.Job != "" && !IsName(w.Job) {
		return nil, ErrName
	}
	e := &encoder{b: make([]byte, 0, 1024)}
	e.word("event", string(event))
	e.word("instance", w.Instance)
	if w.Job != "" {
		e.word("job", w.Job)
	}
	if of != 0 {
		e.number("of", int64(of))
	}
	fields(e)
	return e.b, nil
}

func (w Who) peer(e *encoder) {
	e.number("peer", int64(w.Peer))
	e.flag("embedded", w.Embedded)
	if w.Embedded && w.Account != nil {
		e.number("account", int64(*w.Account))
	}
}

// A Decision describes a job that the supervisor is about to run.
type Decision struct {
	Who
	Repo      string // real path
	Common    string // real path of the git directory that Repo is a worktree of, if the job can access it, or ""
	Dir       string // relative to Repo, as requested
	Profile   string
	Workspace job.Workspace
	Protect   job.Protection
	Network   string // what the job asked for of the hosts that it may reach: words, Allowed for all of them, "" for none
	Terminal  bool
	Limits    job.Limits // as enforced
	Claim     job.Claim
}

// Allowed is the Network of a job that may reach all hosts that the operator allows for the repository.
const Allowed = "allowed"

// Bounds of texts in a record, in escaped bytes. A text that was cut ends in an ellipsis.
const (
	maxPath      = 4095
	maxPathBytes = 4096 // not escaped: PATH_MAX
	maxMessage   = 512
	maxNetwork   = 512
	maxStep      = 64
	maxReached   = 2048 // counts come first, then about ten denied hosts
)

// closerMax is the maximum length of the line of an event that closes a job; this much is allocated for each open
// job.
const closerMax = 4096

// fields writes what a decided record says of the job.
func (d *Decision) fields(e *encoder) {
	d.peer(e)
	e.path("repo", d.Repo)
	e.path("common", d.Common)
	e.path("dir", d.Dir)
	e.text("profile", d.Profile, maxStep)
	e.word("workspace", d.Workspace.String())
	if d.Protect != job.ProtectNone {
		e.word("protect", d.Protect.String())
	}
	e.text("network", cmp.Or(d.Network, job.NoNetwork), maxNetwork)
	e.flag("terminal", d.Terminal)
	e.open("limits")
	for _, f := range d.Limits.Fields() {
		name := f.Key()
		if f.Unit == job.Time {
			name += "_ns"
		}
		e.number(name, *f.Value)
	}
	e.close()
	e.claimed(d.Claim)
}

// An Ending is the outcome of a decided job.
type Ending struct {
	Who
	Of      uint64 // seq of the decided record
	Result  job.Result
	Refusal *job.Refusal // nil if the job started
	// Reached is what corral-egress says of a job with network access, recorded unread: the JSON of egress/control.Summary, or what a
	// job made of it; "" without network access.
	Reached string
}

// fields writes what a finished record says of the job.
func (f *Ending) fields(e *encoder) {
	f.peer(e)
	if f.Refusal != nil {
		e.refusal(f.Refusal)
	} else {
		e.result(&f.Result)
		e.text("reached", f.Reached, maxReached)
	}
}

func (e *encoder) refusal(r *job.Refusal) {
	e.word("status", "refused")
	e.text("step", r.Step, maxStep)
	if r.Errno != 0 {
		e.number("errno", int64(r.Errno))
	}
	e.text("message", r.Message, maxMessage)
}

func (e *encoder) result(r *job.Result) {
	e.text("status", string(r.Status), maxStep)
	if r.Signal != 0 {
		e.number("signal", int64(r.Signal))
	} else {
		e.number("exit", int64(r.ExitCode))
	}
	e.text("limit", r.Limit, maxStep)
	e.text("cgroup", r.Cgroup, maxStep)
	e.number("sensitive", int64(len(r.Sensitive)+r.SensitiveMore))
	e.open("usage")
	u := &r.Usage
	for _, t := range []struct {
		name string
		d    time.Duration
	}{{"wall_ns", u.Wall}, {"cpu_ns", u.CPU}, {"user_ns", u.User}, {"system_ns", u.System}} {
		e.number(t.name, int64(t.d))
	}
	e.number("peak_memory", u.PeakMemory)
	e.number("peak_pids", u.PeakPIDs)
	e.number("read_bytes", u.ReadBytes)
	e.number("write_bytes", u.WriteBytes)
	e.close()
}

// A repair describes damage at the end of the audit log.
type repair struct {
	Cut     int64  // bytes after the last record that were cut off
	Saved   string // file they were moved to, "" if they were the beginning of a single line
	Missing uint64 // records that the head counts and the files lack
}

// body returns the body of a record of a repair by an instance.
func (r *repair) body(instance string) ([]byte, error) {
	return Who{Instance: instance}.body(Repaired, 0, func(e *encoder) {
		e.number("cut_bytes", r.Cut)
		e.text("saved", r.Saved, maxStep)
		e.number("missing", int64(r.Missing))
	})
}
