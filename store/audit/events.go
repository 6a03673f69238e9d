package audit

import (
	"time"

	"corral/job"
	"corral/store/audit/record"
)

// Decided records that a job is about to run, and returns the record's seq. The job must not run if there is an
// error. The error wraps ErrBudget if the user's share is used up. If both a seq and an error are returned, the
// record is written but may not be on disk: the job must be closed like any other.
func (l *Log) Decided(d *record.Decision) (uint64, error) {
	b, err := d.Body()
	if err != nil {
		return 0, err
	}
	return l.charge(record.Decided, &d.Who, 0, b)
}

// Finished records the end of a job; it is called once per job. Decided reserved the space for it. If the record
// cannot be written nevertheless, Finished returns an error and the Log keeps the record: it is written before any
// other, and no job is decided until then.
func (l *Log) Finished(f *record.Ending) error {
	b, err := f.Body()
	if err != nil {
		return err
	}
	_, err = l.charge(record.Finished, &f.Who, f.Of, b)
	return err
}

// Refused records that a job was refused before it was decided. repo is the directory as the client named it.
func (l *Log) Refused(w record.Who, repo string, r *job.Refusal, c job.Claim) error {
	b, err := record.RefusedBody(w, repo, r, c)
	if err != nil {
		return err
	}
	_, err = l.charge(record.Refused, &w, 0, b)
	return err
}

// Denied records that a front-end denied a request.
func (l *Log) Denied(w record.Who, c job.Claim) error {
	b, err := record.DeniedBody(w, c)
	if err != nil {
		return err
	}
	_, err = l.charge(record.Denied, &w, 0, b)
	return err
}

// Dropped records that count refused and denied requests of a user since that time have no records of their own.
func (l *Log) Dropped(w record.Who, count uint64, since time.Time) error {
	b, err := record.DroppedBody(w, count, since)
	if err != nil {
		return err
	}
	_, err = l.append(record.Dropped, 0, b)
	return err
}

// Instance records that a supervisor started or ended: event is record.Started or record.Ended.
func (l *Log) Instance(event record.Event, instance string, pid int) error {
	b, err := record.InstanceBody(event, instance, pid)
	if err != nil {
		return err
	}
	_, err = l.append(event, 0, b)
	return err
}
