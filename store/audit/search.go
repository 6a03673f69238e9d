package audit

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"corral/internal/users"
	"corral/job"
)

// Outcomes of events that have no status of their own.
const (
	outcomeLost    = string(Lost)
	outcomeRefused = string(Refused)
	outcomeDenied  = string(Denied)
)

// Outcomes returns the words that Filter.Outcomes may have.
func Outcomes() []string {
	return []string{
		string(job.Success), string(job.Failure), string(job.Timeout), string(job.Cancelled), outcomeLost, outcomeRefused, outcomeDenied,
	}
}

// CheckOutcomes returns an error unless each word is one of Outcomes.
func CheckOutcomes(words []string) error {
	for _, word := range words {
		if !slices.Contains(Outcomes(), word) {
			return fmt.Errorf("must be %s, or several of them with commas between", strings.Join(Outcomes(), ", "))
		}
	}
	return nil
}

// ParseTime parses a time, a date, or a duration before now.
func ParseTime(s string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, errors.New("must be a time such as 2026-11-21, 2026-11-21T10:00:00Z or 36h")
}

// A Filter selects records. The zero value selects all of them. Call Prepare first, and then Add for each record of the log, in order.
//
// The fields about a job select all its records. Its last record does not repeat what the first one says, and says how it
// ended, so the filter remembers what it has selected of the jobs that have not ended: as many as run at once.
type Filter struct {
	User            string // name or number; also through sudo
	Repo            string // its path, or its id as the front-end claims it
	Principal, Tool string // as the front-end claims them
	Request         string // as the front-end claims it: the trace id that its log has
	Outcomes        []string
	Since, Until    time.Time

	uid  *uint32           // of User
	mine map[uint64]*Found // jobs that run, by the number of their first record
}

// Found is a record that was selected.
type Found struct {
	Record *Record
	Text   []byte // the line as it is in the log
}

// Prepare resolves what the fields name.
func (f *Filter) Prepare() error {
	f.mine = map[uint64]*Found{}
	if f.User == "" {
		return nil
	}
	uid, err := users.Parse(f.User)
	if err != nil {
		return fmt.Errorf("user %q: %w", f.User, err)
	}
	f.uid = &uid
	return nil
}

// anyJob reports whether the filter selects records of every job and request.
func (f *Filter) anyJob() bool {
	return f.User == "" && f.Repo == "" && f.Principal == "" && f.Tool == "" && f.Request == "" && f.Outcomes == nil
}

// All reports whether the filter selects every record.
func (f *Filter) All() bool { return f.anyJob() && f.Since.IsZero() && f.Until.IsZero() }

// Add returns the records that are selected now that a record was read, in their order. With Outcomes, the first record of
// a job is selected together with its last one. text may be reused by the caller.
func (f *Filter) Add(r *Record, text []byte) []Found {
	this := Found{r, text}
	switch {
	case f.anyJob():
		return f.within(this)
	case r.Event == Decided:
		if !f.About(r) {
			return nil
		}
		kept := &Found{Record: r}
		if f.Outcomes != nil {
			kept.Text = slices.Clone(text)
		}
		f.mine[r.Seq] = kept
		if f.Outcomes != nil {
			return nil
		}
		return f.within(this)
	case r.Event.Closes():
		first := f.mine[r.Of]
		delete(f.mine, r.Of)
		if first == nil || f.Outcomes != nil && !slices.Contains(f.Outcomes, Outcome(r)) {
			return nil
		}
		if f.Outcomes != nil {
			return f.within(*first, this)
		}
		return f.within(this)
	case !f.About(r) || f.Outcomes != nil && !slices.Contains(f.Outcomes, Outcome(r)):
		return nil
	}
	return f.within(this)
}

// About reports whether a record that is not the last one of a job is about what the fields name.
func (f *Filter) About(r *Record) bool {
	claims := func(name, want string) bool { return want == "" || r.Claimed[name] == want }
	by := func(uid *uint32) bool { return uid != nil && *uid == *f.uid }
	return (f.uid == nil || by(r.Peer) || by(r.Account)) && claims("principal", f.Principal) && claims("tool", f.Tool) &&
		claims("request", f.Request) && (f.Repo == "" || r.Claimed["repo"] == f.Repo || r.RepoPath() == filepath.Clean(f.Repo))
}

// within returns the records of the period.
func (f *Filter) within(list ...Found) []Found {
	return slices.DeleteFunc(list, func(o Found) bool {
		return o.Record.Time.Before(f.Since) || !f.Until.IsZero() && !o.Record.Time.Before(f.Until)
	})
}

// Outcome returns how the request of a record ended, "" if the record does not say.
func Outcome(r *Record) string {
	switch r.Event {
	case Lost:
		return outcomeLost
	case Refused:
		return outcomeRefused
	case Denied:
		return outcomeDenied
	case Finished:
		return r.Status
	}
	return ""
}
