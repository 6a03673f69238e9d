package audit

import "errors"

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

// Closes reports whether an event ends an open job. Space for it was allocated when the job was decided.
func (e Event) Closes() bool { return e == Finished || e == Lost }

// Who identifies the job or the request of a record.
type Who struct {
	Instance string // of the supervisor, [a-z0-9-]{1,32}
	Job      string // [a-z0-9-]{1,32}, "" for none; an instance that restarts may reuse names
	Peer     uint32 // user id of the caller
	Payer    uint32 // user id whose share of the audit log is charged; not recorded. 0 means Peer
	Embedded bool   // the caller is the front-end for which root started the supervisor
	// Account is the user with whose rights an embedded supervisor opens directories: the one who called sudo. It is
	// recorded only with Embedded; nil means that it is not known.
	Account *uint32
}

// MaxName is the maximum length of the names of instances and jobs, in bytes.
const MaxName = 32

// IsName reports whether s is a valid name of an instance or a job: 1 to MaxName characters of a to z, 0 to 9 and -.
func IsName(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= MaxName
}

// ErrName is returned for an instance or job name that would need escapes.
var ErrName = errors.New("audit: invalid name of an instance or job: must be 1 to 32 lower-case letters, digits and dashes")

// OpenDelta returns the change of the number of open jobs by an event.
func (e Event) OpenDelta() int64 {
	switch {
	case e == Decided:
		return 1
	case e.Closes():
		return -1
	}
	return 0
}
