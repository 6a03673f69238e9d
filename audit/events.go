package audit

import (
	"errors"
	"strings"
	"time"

	"corral/job"
)

// An Event is what a record tells of.
type Event string

// The events.
const (
	Started  Event = "started"  // a supervisor began
	Ended    Event = "ended"    // a supervisor ended in order
	Decided  Event = "decided"  // a job is about to run
	Finished Event = "finished" // a decided job ended
	Lost     Event = "lost"     // the supervisor of a decided job was killed
	Refused  Event = "refused"  // the supervisor refused a job before it was decided
	Denied   Event = "denied"   // a front-end denied a request
	Dropped  Event = "dropped"  // so many refused and denied requests of a user were not written down one by one
	Rotated  Event = "rotated"  // the log goes on in another file; this is the last record of its own
	Repaired Event = "repaired" // the log did not end as it should, and goes on from what was whole
)

// closes says whether an event ends an open job. Room was made for it when the job was decided.
func (e Event) closes() bool { return e == Finished || e == Lost }

// Who is the job or the request that a record is about.
type Who struct {
	Instance string // of the supervisor, [a-z0-9-]{1,32}
	Job      string // [a-z0-9-]{1,32}, "" for none; an instance that starts again begins anew with its names
	Peer     uint32 // user id of who asked
	Payer    uint32 // user id of whose share of the log it takes; not written down. 0 is Peer's own
	Embedded bool   // who asked is the front-end for which root started the supervisor
}

// errName is a name that is not of ours: it would need escapes.
var errName = errors.New("audit: a name of other than letters, digits and dashes, or longer than 32")

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
	e.yes("embedded", w.Embedded)
}

// maxName bounds names of instances and jobs, in bytes.
const maxName = 32

func isName(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= maxName
}

// A Decision is a job as the supervisor is about to run it.
type Decision struct {
	Who
	Repo      string // real path
	Common    string // real path of the git directory that Repo is a worktree of and that the job has too, or ""
	Dir       string // relative to Repo, as it was asked for
	Profile   string
	Workspace job.Workspace
	Protect   job.Protection
	Terminal  bool
	Limits    job.Limits // enforced
	Claim     job.Claim
}

// Bounds of texts in a record, in bytes as they are written: escaped. A text that was cut ends in an ellipsis.
const (
	maxPath    = 4095
	maxMessage = 512
	maxStep    = 64
)

// closerMax bounds the line of an event that closes a job: so much is allocated for each one that is open.
const closerMax = 4096

// Decided writes that a job is about to run, and returns the record's seq. The job must not run when there is an error.
// An error that wraps ErrBudget is of a user who has no bytes left.
// With a seq and an error the record is written, but the disk may not have it: it is to be closed as any other.
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
	e.yes("terminal", d.Terminal)
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

// An Ending is what became of a decided job.
type Ending struct {
	Who
	Of      uint64 // seq of the decided record
	Result  job.Result
	Refusal *job.Refusal // nil if the job started
}

// Finished writes the end of a job, once. It has the room that Decided made for it. If it cannot be written nevertheless,
// there is an error, and the log keeps it: it is written before any other record is, and nothing is decided until then.
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

// Refused writes that a job was refused before it was decided. repo is how the client named the directory.
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

// Denied writes that a front-end denied a request.
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

// Dropped writes that count refused and denied requests of a user, since that time, have no record of their own.
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

// Instance writes that a supervisor began or ended: event is Started or Ended.
func (l *Log) Instance(event Event, instance string, pid int) error {
	e, err := Who{Instance: instance}.begin(event, 0)
	if err != nil {
		return err
	}
	e.number("pid", int64(pid))
	_, err = l.append(event, 0, e.b)
	return err
}
