package audit

import (
	"time"

	"corral/job"
)

// Decided records that a job is about to run, and returns the record's seq. The job must not run if there is an
// error. The error wraps ErrBudget if the user's share is used up. If both a seq and an error are returned, the
// record is written but may not be on disk: the job must be closed like any other.
func (l *Log) Decided(d *Decision) (uint64, error) { return l.charge(Decided, d.Who, 0, d.fields) }

// Finished records the end of a job; it is called once per job. Decided reserved the space for it. If the record
// cannot be written nevertheless, Finished returns an error and the Log keeps the record: it is written before any
// other, and no job is decided until then.
func (l *Log) Finished(f *Ending) error {
	_, err := l.charge(Finished, f.Who, f.Of, f.fields)
	return err
}

// Refused records that a job was refused before it was decided. repo is the directory as the client named it.
func (l *Log) Refused(w Who, repo string, r *job.Refusal, c job.Claim) error {
	_, err := l.charge(Refused, w, 0, w.refused(repo, r, c))
	return err
}

func (w Who) refused(repo string, r *job.Refusal, c job.Claim) func(*encoder) {
	return func(e *encoder) {
		w.peer(e)
		e.path("repo", repo)
		e.refusal(r)
		e.claimed(c)
	}
}

// Denied records that a front-end denied a request.
func (l *Log) Denied(w Who, c job.Claim) error {
	_, err := l.charge(Denied, w, 0, func(e *encoder) {
		w.peer(e)
		e.claimed(c)
	})
	return err
}

// Dropped records that count refused and denied requests of a user since that time have no records of their own.
func (l *Log) Dropped(w Who, count uint64, since time.Time) error {
	return l.record(Dropped, w, 0, func(e *encoder) {
		w.peer(e)
		e.number("count", int64(count))
		e.word("since", since.UTC().Format(timeLayout))
	})
}

// Instance records that a supervisor started or ended: event is Started or Ended.
func (l *Log) Instance(event Event, instance string, pid int) error {
	return l.record(event, Who{Instance: instance}, 0, func(e *encoder) { e.number("pid", int64(pid)) })
}

// lost records that the supervisor of the job with the decided record of was killed.
func (l *Log) lost(w Who, of uint64) error { return l.record(Lost, w, of, func(*encoder) {}) }
