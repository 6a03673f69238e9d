package audit

import (
	"time"

	"corral/job"
)

// Decided records that a job is about to run, and returns the record's seq. The job must not run if there is an
// error. The error wraps ErrBudget if the user's share is used up. If both a seq and an error are returned, the
// record is written but may not be on disk: the job must be closed like any other.
func (l *Log) Decided(d *Decision) (uint64, error) {
	b, err := d.Body()
	if err != nil {
		return 0, err
	}
	return l.charge(Decided, &d.Who, 0, b)
}

// Finished records the end of a job; it is called once per job. Decided reserved the space for it. If the record
// cannot be written nevertheless, Finished returns an error and the Log keeps the record: it is written before any
// other, and no job is decided until then.
func (l *Log) Finished(f *Ending) error {
	b, err := f.Body()
	if err != nil {
		return err
	}
	_, err = l.charge(Finished, &f.Who, f.Of, b)
	return err
}

// Refused records that a job was refused before it was decided. repo is the directory as the client named it.
func (l *Log) Refused(w Who, repo string, r *job.Refusal, c job.Claim) error {
	b, err := refusedBody(w, repo, r, c)
	if err != nil {
		return err
	}
	_, err = l.charge(Refused, &w, 0, b)
	return err
}

// Denied records that a front-end denied a request.
func (l *Log) Denied(w Who, c job.Claim) error {
	b, err := deniedBody(w, c)
	if err != nil {
		return err
	}
	_, err = l.charge(Denied, &w, 0, b)
	return err
}

// Dropped records that count refused and denied requests of a user since that time have no records of their own.
func (l *Log) Dropped(w Who, count uint64, since time.Time) error {
	b, err := droppedBody(w, count, since)
	if err != nil {
		return err
	}
	_, err = l.append(Dropped, 0, b)
	return err
}

// Instance records that a supervisor started or ended: event is record.Started or record.Ended.
func (l *Log) Instance(event Event, instance string, pid int) error {
	b, err := instanceBody(event, instance, pid)
	if err != nil {
		return err
	}
	_, err = l.append(event, 0, b)
	return err
}
