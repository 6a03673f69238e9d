package audit

import (
	"errors"
	"strings"
	"time"

	"corral/job"
)

// An Event is the kind of a record.
type Event string

// The events.
const (
	Started  Event = "started"  // a supervisor started
	Ended    Event = "ended"    // a supervisor ended normally
	Decided  Event = "decided"  // a job is about to run
	Finished Event = "finished" // a decided job ended
	Lost     Event = "lost"     // the supervisor of a decided job was killed
	Refused  Event = "refused"  // the supervisor refused a job before it was decided
	Denied   Event = "denied"   // a front-end denied a request
	Dropped  Event = "dropped"  // a number of refused and denied requests of a user have no records of their own
	Rotated  Event = "rotated"  // the audit log continues in another file; this is the last record of its file
	Repaired Event = "repaired" // the end of the audit log was damaged, and it continues after the last intact record
)

// closes reports whether an event ends an open job. Space for it was allocated when the job was decided.
func (e Event) closes() bool { return e == Finished || e == Lost }

// Who identifies the job or the request of a record.
type Who struct {
	Instance string // of the supervisor, [a-z0-9-]{1,32}
	Job      string // [a-z0-9-]{1,32}, "" for none; an instance that restarts may reuse names
	Peer     uint32 // user id of the caller
	Payer    uint32 // user id whose share of the audit log is charged; not recorded. 0 means Peer
	Embedded bool   // the caller is the front-end for which root started the supervisor
}

// errName is returned for an instance or job name that would need escapes.
var errName = errors.New("audit: invalid name of an instance or job: must be 1 to 32 lower-case letters, digits and dashes")

// begin writes the first fields of a record.
func (w Who) begin(event Event, of uint64) (*encoder, error) {
	if !isName(w.Instance) || w.Job != "" && !isName(w.Job) {
		return nil, errName
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
	return e, nil
}

func (w Who) peer(e *encoder) {
	e.number("peer", int64(w.Peer))
	e.flag("embedded", w.Embedded)
}

// maxName is the maximum length of the names of instances and jobs, in bytes.
const maxName = 32

func isName(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= maxName
}

// A Decision describes a job that the supervisor is about to run.
type Decision struct {
	Who
	Repo      string // real path
	Common    string // real path of the git directory of which Repo is a worktree and which the job can access, or ""
	Dir       string // relative to Repo, as requested
	Profile   string
	Workspace job.Workspace
	Protect   job.Protection
	Terminal  bool
	Limits    job.Limits // as enforced
	Claim     job.Claim
}

// Bounds of texts in a record, in escaped bytes. A text that was cut ends in an ellipsis.
const (
	maxPath    = 4095
	maxMessage = 512
	maxStep    = 64
)

// closerMax is the maximum length of the line of an event that closes a job; this much is allocated for each open
// job.
const closerMax = 4096

// Decided records that a job is about to run, and returns the record's seq. The job must not run if there is an
// error. The error wraps ErrBudget if the user's share is used up. If both a seq and an error are returned, the
// record is written but may not be on disk: the job must be closed like any other.
func (l *Log) Decided(d *Decision) (uint64, error) {
	e, err := d.begin(Decided, 0)
	if err != nil {
		return 0, err
	}
	d.peer(e)
	e.text("repo", d.Repo, maxPath)
	e.text("common", d.Common, maxPath)
	e.text("dir", d.Dir, maxPath)
	e.text("profile", d.Profile, maxStep)
	e.word("workspace", d.Workspace.String())
	if d.Protect != job.ProtectNone {
		e.word("protect", d.Protect.String())
	}
	e.word("network", "none")
	e.flag("terminal", d.Terminal)
	e.open("limits")
	for _, f := range d.Limits.Fields() {
		if f.Name == "timeout" {
			f.Name = "timeout_ns"
		}
		e.number(strings.ReplaceAll(f.Name, " ", "_"), *f.Value)
	}
	e.close()
	e.claimed(d.Claim)
	return l.charge(Decided, &d.Who, 0, e.b)
}

// An Ending is the outcome of a decided job.
type Ending struct {
	Who
	Of      uint64 // seq of the decided record
	Result  job.Result
	Refusal *job.Refusal // nil if the job started
}

// Finished records the end of a job; it is called once per job. Decided reserved the space for it. If the record
// cannot be written nevertheless, Finished returns an error and the Log keeps the record: it is written before any
// other, and no job is decided until then.
func (l *Log) Finished(f *Ending) error {
	e, err := f.begin(Finished, f.Of)
	if err != nil {
		return err
	}
	f.peer(e)
	if f.Refusal != nil {
		e.refusal(f.Refusal)
	} else {
		e.result(&f.Result)
	}
	_, err = l.charge(Finished, &f.Who, f.Of, e.b)
	return err
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

// Refused records that a job was refused before it was decided. repo is the directory as the client named it.
func (l *Log) Refused(w Who, repo string, r *job.Refusal, c job.Claim) error {
	e, err := w.begin(Refused, 0)
	if err != nil {
		return err
	}
	w.peer(e)
	e.text("repo", repo, maxPath)
	e.refusal(r)
	e.claimed(c)
	_, err = l.charge(Refused, &w, 0, e.b)
	return err
}

// Denied records that a front-end denied a request.
func (l *Log) Denied(w Who, c job.Claim) error {
	e, err := w.begin(Denied, 0)
	if err != nil {
		return err
	}
	w.peer(e)
	e.claimed(c)
	_, err = l.charge(Denied, &w, 0, e.b)
	return err
}

// Dropped records that count refused and denied requests of a user since that time have no records of their own.
func (l *Log) Dropped(w Who, count uint64, since time.Time) error {
	e, err := w.begin(Dropped, 0)
	if err != nil {
		return err
	}
	w.peer(e)
	e.number("count", int64(count))
	e.word("since", since.UTC().Format(timeLayout))
	_, err = l.append(Dropped, 0, e.b)
	return err
}

// Instance records that a supervisor started or ended: event is Started or Ended.
func (l *Log) Instance(event Event, instance string, pid int) error {
	e, err := Who{Instance: instance}.begin(event, 0)
	if err != nil {
		return err
	}
	e.number("pid", int64(pid))
	_, err = l.append(event, 0, e.b)
	return err
}
