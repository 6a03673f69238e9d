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

	"corral/audit"
	"corral/isolate/wire"
	"corral/job"
)

// Audit says how the audit log is kept. All supervisors that share a state directory should be told the same.
type Audit struct {
	Each    bool  // every record waits for the disk; else the disk has it within 20 ms
	MaxSize int64 // bytes of one file; 0 is audit.DefaultMaxSize
	Keep    int   // files kept beside the one that is written; 0 is all
	// KeepFor is how long each file is kept in any case; 0 is a week, below 0 not at all.
	KeepFor time.Duration
	// UserDaily is how many bytes the records of one user may take in a day; 0 is audit.DefaultUserDaily, below 0 there is no bound.
	UserDaily int64
}

// DefaultAuditKeepFor is how long files of the log are kept at least.
const DefaultAuditKeepFor = 7 * 24 * time.Hour

// openAudit opens the log, closes the open records of supervisors that were killed, and says that this one began.
func (s *Supervisor) openAudit() error {
	l, err := audit.Open(filepath.Join(s.config.StateDir, "audit"), audit.Options{
		Instance: s.config.Instance, Each: s.config.Audit.Each, MaxSize: s.config.Audit.MaxSize, Keep: s.config.Audit.Keep,
		KeepFor: max(cmp.Or(s.config.Audit.KeepFor, DefaultAuditKeepFor), 0), UserDaily: max(cmp.Or(s.config.Audit.UserDaily, audit.DefaultUserDaily), 0),
		Log: s.config.Log,
	})
	if err != nil {
		return err
	}
	// No instance begins to live while this lock is held.
	unlock, err := lockFile(filepath.Join(RunDir, "lock"), true)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	lost, err := l.Recover(s.alive)
	unlock()
	if err == nil {
		err = l.Instance(audit.Started, s.config.Instance, os.Getpid())
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if lost > 0 {
		s.config.Log.Warn("jobs of killed supervisors are lost", "jobs", lost)
	}
	s.audit = l
	return nil
}

// alive says whether another instance lives: its lock is held. This one has no jobs yet, so what is open in its name is a
// predecessor's.
func (s *Supervisor) alive(name string) bool {
	if name == s.config.Instance || !instanceName.MatchString(name) {
		return false
	}
	f, err := os.OpenFile(filepath.Join(instancesDir, name, "lock"), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// closeAudit says that this supervisor ends, and waits for the disk.
func (s *Supervisor) closeAudit() error {
	s.denials.flush(s.dropped)
	if err := s.audit.Instance(audit.Ended, s.config.Instance, os.Getpid()); err != nil {
		s.config.Log.Error("audit record not written", "error", err)
	}
	return s.audit.Close()
}

func (s *Supervisor) who(peer Peer, id string) audit.Who {
	return audit.Who{Instance: s.config.Instance, Job: id, Peer: peer.UID, Payer: peer.payer(), Embedded: peer.Embedded}
}

// decide writes down what is about to run, or refuses it. From here on the job has an end in the log.
func (s *Supervisor) decide(r *run, q *Request, repo *repo, profile string) error {
	d := audit.Decision{
		Who: s.who(r.peer, r.id), Repo: repo.path, Dir: q.Dir, Profile: profile, Protect: r.protect,
		Terminal: q.Flags&wire.FlagTerminal != 0, Limits: r.limits, Claim: q.Claim,
	}
	if repo.common != nil {
		d.Common = repo.common.path
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
	if r.decided, err = s.audit.Decided(&d); err != nil { // it may be written: then record closes it
		message, hint := splitHint(err)
		if errors.Is(err, audit.ErrBudget) {
			return &job.Refusal{Step: "limits", Errno: int(unix.EDQUOT), Message: message, Hint: hint}
		}
		return &job.Refusal{Step: "audit", Errno: int(errnoOf(err)), Message: message, Hint: hint}
	}
	return nil
}

// splitHint takes an error's text and its hint apart.
func splitHint(err error) (message, hint string) {
	message, hint, _ = strings.Cut(err.Error(), "\nhint: ")
	return message, hint
}

func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return 0
}

// record writes down what became of a job. One that was not decided is one record, as are requests that were denied. An end
// that cannot be written now is written before the next record: until then, no job is decided.
func (s *Supervisor) record(r *run, q *Request, result *wire.Result) {
	var err error
	switch {
	case r.decided != 0:
		err = s.audit.Finished(ending(s.who(r.peer, r.id), r.decided, result))
	case result.Step == "audit" && unix.Errno(result.Errno) == unix.EAGAIN:
		// It has waited for the log's lock already, and nobody shall wait twice.
		s.config.Log.Error("audit record not written", "job", r.id, "error", result.Message)
	case s.allowDenial(r.peer):
		err = s.audit.Refused(s.who(r.peer, r.id), q.Repo, refusalOf(result), q.Claim)
	}
	if errors.Is(err, audit.ErrBudget) {
		s.dropDenial(r.peer)
		return
	}
	if err != nil {
		s.config.Log.Error("audit record not written", "job", r.id, "error", err)
	}
}

func refusalOf(r *wire.Result) *job.Refusal {
	return &job.Refusal{Step: r.Step, Errno: int(r.Errno), Message: r.Message}
}

// ending says in the log's words what became of a job: of sensitive paths, how many.
func ending(who audit.Who, of uint64, r *wire.Result) *audit.Ending {
	e := &audit.Ending{Who: who, Of: of}
	var err error
	if e.Result, err = r.Became(); err != nil {
		e.Refusal = refusalOf(r)
		return e
	}
	e.Result.SensitiveMore += strings.Count(r.Sensitive, "\x00")
	return e
}

// denied writes down what a front-end denied. The error is for the client.
func (s *Supervisor) denied(peer Peer, c job.Claim) error {
	if !s.begin() {
		return errEnding
	}
	defer s.work.Done()
	allowed := s.allowDenial(peer)
	if allowed {
		err := s.audit.Denied(s.who(peer, ""), c)
		if !errors.Is(err, audit.ErrBudget) {
			return err
		}
		s.dropDenial(peer)
	}
	return fmt.Errorf("audit: too many denied requests of user %d: this one is counted, and not written down\nhint: ask less often", peer.UID)
}

// allowDenial says whether one more record of a request that came to nothing may be written for a user. What may not is
// counted, and the count is written down later.
func (s *Supervisor) allowDenial(peer Peer) bool {
	allowed, first := s.denials.take(peer.counted(), time.Now())
	s.flushLater(first)
	return allowed
}

// dropDenial counts a record that may not be written though it came in time.
func (s *Supervisor) dropDenial(peer Peer) { s.flushLater(s.denials.drop(peer.counted(), time.Now())) }

// flushLater has what was dropped written down after a while, if this was the first of it.
func (s *Supervisor) flushLater(first bool) {
	if first {
		time.AfterFunc(denialPause, func() {
			if s.begin() { // else Close does it
				defer s.work.Done()
				s.denials.flush(s.dropped)
			}
		})
	}
}

func (s *Supervisor) dropped(peer Peer, count uint64, since time.Time) {
	if err := s.audit.Dropped(s.who(peer, ""), count, since); err != nil {
		s.config.Log.Error("audit record not written", "uid", peer.UID, "dropped", count, "error", err)
	}
}
