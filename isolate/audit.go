package isolate

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/fault"
	"corral/isolate/admit"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
	"corral/store/audit"
)

// Audit configures the audit log. Supervisors that share a state directory should have the same configuration.
type Audit struct {
	Each    bool  // wait for the disk with every record; otherwise records reach the disk within 20 ms
	MaxSize int64 // maximum size of one file in bytes; 0 is audit.DefaultMaxSize
	Keep    int   // number of files kept besides the one being written; 0 is all
	// KeepFor is the minimum age at which a file may be removed; 0 is a week, negative is none.
	KeepFor time.Duration
	// UserDaily is the maximum number of bytes per day for the records of one user; 0 is audit.DefaultUserDaily,
	// negative is unlimited.
	UserDaily int64
	Record    job.Recording // what is recorded of programs, if the front-end says it
}

// DefaultAuditKeepFor is the default of Audit.KeepFor.
const DefaultAuditKeepFor = 7 * 24 * time.Hour

// openAudit opens the audit log, closes the open records of supervisors that were killed, and records the start of
// this one.
func (s *Supervisor) openAudit() error {
	l, err := audit.Open(filepath.Join(s.config.StateDir, "audit"), audit.Options{
		Instance: s.config.Instance, Each: s.config.Audit.Each, MaxSize: s.config.Audit.MaxSize, Keep: s.config.Audit.Keep,
		KeepFor:   max(cmp.Or(s.config.Audit.KeepFor, DefaultAuditKeepFor), 0),
		UserDaily: max(cmp.Or(s.config.Audit.UserDaily, audit.DefaultUserDaily), 0),
		Log:       s.config.Log, Patience: s.config.switches.locked,
	})
	if err != nil {
		return err
	}
	// No instance can start while this lock is held.
	unlock, err := host.LockInstances()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	// This supervisor has no jobs yet, so records that are open in its own name belong to a predecessor.
	lost, err := l.Recover(func(name string) bool { return name != s.config.Instance && host.Running(name) })
	unlock()
	if err == nil {
		err = l.Instance(audit.Started, s.config.Instance, os.Getpid())
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if lost > 0 {
		s.config.Log.Warn("recorded jobs of killed supervisors as lost", "jobs", lost)
	}
	s.audit = l
	return nil
}

// closeAudit records the end of this supervisor and waits until the log is on disk.
func (s *Supervisor) closeAudit() error {
	s.denials.flush(s.dropped)
	if err := s.audit.Instance(audit.Ended, s.config.Instance, os.Getpid()); err != nil {
		s.config.Log.Error("audit record not written", "error", err)
	}
	return s.audit.Close()
}

func (s *Supervisor) who(peer host.Peer, id string) audit.Who {
	who := audit.Who{Instance: s.config.Instance, Job: id, Peer: peer.UID, Payer: peer.Payer(), Embedded: peer.Embedded}
	if peer.Embedded && peer.Account != nil { // root named it when it started this supervisor; no message can change it
		who.Account = &peer.Account.UID
	}
	return who
}

// decide records the decision to run a job, before it runs, or refuses the job if that cannot be recorded. From then
// on the audit log has an open record that must be finished.
func (s *Supervisor) decide(r *run, q *admit.Request, repo *admit.Repo, profile string) error {
	defer fault.End() // a record may be open, or half written
	d := audit.Decision{
		Who: s.who(r.peer, r.id), Repo: repo.Path, Dir: q.Dir, Profile: profile, Protect: r.protect,
		Network: r.network, Terminal: q.Flags&wire.FlagTerminal != 0, Limits: r.limits, Claim: s.claimed(q.Claim),
	}
	if repo.Common != nil {
		d.Common = repo.Common.Path
	}
	switch {
	case q.Flags&wire.FlagReadOnly != 0:
		d.Workspace = job.ReadOnly
	case q.Flags&wire.FlagOverlay != 0:
		d.Workspace = job.Overlay
	case q.Flags&wire.FlagNoRepo != 0:
		d.Workspace = job.NoRepo
	}
	var err error
	if r.decided, err = s.audit.Decided(&d); err != nil { // the record may still reach the log; then Supervisor.record finishes it
		message, hint := host.SplitHint(err)
		if errors.Is(err, audit.ErrBudget) {
			return &job.Refusal{Step: "limits", Errno: int(unix.EDQUOT), Message: message, Hint: hint}
		}
		return &job.Refusal{Step: "audit", Errno: int(host.ErrnoOf(err)), Message: message, Hint: hint}
	}
	return nil
}

// record writes the end of a job to the audit log. A job without a recorded decision gets a single record, like a
// denied request. An end that cannot be written now is written before the next record; until then no job is accepted.
func (s *Supervisor) record(r *run, q *admit.Request, result *wire.Result) {
	defer fault.End() // otherwise the record of the decision would stay open
	var err error
	if result.Outcome == wire.Refused {
		s.recent.add(r.peer, r.id, q.Repo, result.Message, &q.Claim)
	}
	switch {
	case r.decided != 0:
		err = s.audit.Finished(ending(s.who(r.peer, r.id), r.decided, result))
	case result.Step == "audit" && unix.Errno(result.Errno) == unix.EAGAIN:
		// It has waited for the audit log's lock already, and must not wait a second time.
		s.config.Log.Error("audit record not written", "job", r.id, "error", result.Message)
	case s.allowDenial(r.peer):
		err = s.audit.Refused(s.who(r.peer, r.id), q.Repo, refusalOf(result), s.claimed(q.Claim))
	}
	if errors.Is(err, audit.ErrBudget) {
		s.dropDenial(r.peer)
		return
	}
	if err != nil {
		s.config.Log.Error("audit record not written", "job", r.id, "error", err)
	}
}

// claimed returns what is recorded of a claim.
func (s *Supervisor) claimed(c job.Claim) job.Claim {
	c.Limit(s.config.Audit.Record)
	return c
}

func refusalOf(r *wire.Result) *job.Refusal {
	return &job.Refusal{Step: r.Step, Errno: int(r.Errno), Message: r.Message}
}

// ending converts a job's result to an audit record. Of the sensitive paths only the number is recorded.
func ending(who audit.Who, of uint64, r *wire.Result) *audit.Ending {
	e := &audit.Ending{Who: who, Of: of, Reached: r.Reached}
	var err error
	if e.Result, err = r.JobResult(); err != nil {
		e.Refusal = refusalOf(r)
		return e
	}
	e.Result.SensitiveMore += strings.Count(r.Sensitive, "\x00")
	return e
}

// denied records a request that a front-end denied. The error is for the client.
func (s *Supervisor) denied(peer host.Peer, c job.Claim) error {
	if !s.work.Begin() {
		return host.ErrEnding
	}
	defer s.work.Done()
	s.recent.add(peer, "", c.Repo, c.Reason, &c)
	allowed := s.allowDenial(peer)
	if allowed {
		err := s.audit.Denied(s.who(peer, ""), s.claimed(c))
		if !errors.Is(err, audit.ErrBudget) {
			return err
		}
		s.dropDenial(peer)
	}
	return fmt.Errorf("audit: too many denied requests of user %d: this one was counted, but not recorded\nhint: send denied requests less often", peer.UID)
}

// allowDenial reports whether one more record of a failed request may be written for the peer's user. A record that
// may not be written is counted, and the count is recorded later.
func (s *Supervisor) allowDenial(peer host.Peer) bool {
	allowed, first := s.denials.allow(denialKey(peer), time.Now())
	s.flushLater(first)
	return allowed
}

// dropDenial counts a record that allowDenial permitted but the user's budget does not.
func (s *Supervisor) dropDenial(peer host.Peer) {
	s.flushLater(s.denials.drop(denialKey(peer), time.Now()))
}

// flushLater schedules a flush of the dropped counts after denialPause if first is set.
func (s *Supervisor) flushLater(first bool) {
	if first {
		time.AfterFunc(denialPause, func() {
			if s.work.Begin() { // otherwise Close flushes
				defer s.work.Done()
				s.denials.flush(s.dropped)
			}
		})
	}
}

func (s *Supervisor) dropped(peer host.Peer, count uint64, since time.Time) {
	if err := s.audit.Dropped(s.who(peer, ""), count, since); err != nil {
		s.config.Log.Error("audit record not written", "uid", peer.UID, "dropped", count, "error", err)
	}
}
