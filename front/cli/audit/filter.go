package audit

import (
	"flag"
	"fmt"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"corral/job"
	"corral/store/audit/record"
)

// Outcomes of events that have no status of their own.
const (
	outcomeLost    = string(record.Lost)
	outcomeRefused = string(record.Refused)
	outcomeDenied  = string(record.Denied)
)

// outcomes are the words that --outcome accepts.
var outcomes = []string{
	string(job.Success), string(job.Failure), string(job.Timeout), string(job.Cancelled), outcomeLost, outcomeRefused, outcomeDenied,
}

// A filter selects records. The zero value selects all of them.
//
// The options about a job select all its records. Its last record does not repeat what the first one says, and says how it
// ended, so the filter remembers what it has selected of the jobs that have not ended: as many as run at once.
type filter struct {
	user, repo, principal, tool, request string
	wanted                               []string // outcomes; nil is any
	since, until                         time.Time

	uid  *uint32         // of user
	mine map[uint64]*one // jobs that run, by the number of their first record
}

// one is a record that was selected.
type one struct {
	record *record.Record
	text   []byte // the line as it is in the log
}

// flags adds the options of the filter. The names of users are looked up by prepare, when root's rights were given up.
func (f *filter) flags(set *flag.FlagSet) {
	set.StringVar(&f.user, "user", "", "")
	set.StringVar(&f.repo, "repo", "", "")
	set.StringVar(&f.principal, "principal", "", "")
	set.StringVar(&f.tool, "tool", "", "")
	set.StringVar(&f.request, "request", "", "")
	set.Func("outcome", "", func(s string) error {
		for word := range strings.SplitSeq(s, ",") {
			if !slices.Contains(outcomes, word) {
				return fmt.Errorf("must be %s, or several of them with commas between", strings.Join(outcomes, ", "))
			}
			f.wanted = append(f.wanted, word)
		}
		return nil
	})
	for name, t := range map[string]*time.Time{"since": &f.since, "until": &f.until} {
		set.Func(name, "", func(s string) (err error) {
			*t, err = ParseTime(s, time.Now())
			return err
		})
	}
}

// prepare resolves what the options name.
func (f *filter) prepare() error {
	f.mine = map[uint64]*one{}
	if f.user == "" {
		return nil
	}
	id := f.user
	if u, err := user.Lookup(f.user); err == nil {
		id = u.Uid
	}
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return fmt.Errorf("--user %q: no such user: must be the name or the number of one", f.user)
	}
	uid := uint32(n)
	f.uid = &uid
	return nil
}

// anyJob reports whether the filter selects records of every job and request.
func (f *filter) anyJob() bool {
	return f.user == "" && f.repo == "" && f.principal == "" && f.tool == "" && f.request == "" && f.wanted == nil
}

// all reports whether the filter selects every record.
func (f *filter) all() bool { return f.anyJob() && f.since.IsZero() && f.until.IsZero() }

// add returns the records that are selected now that a record was read, in their order. With --outcome, the first record of
// a job is selected together with its last one. text may be reused by the caller.
func (f *filter) add(r *record.Record, text []byte) []one {
	this := one{r, text}
	switch {
	case f.anyJob():
		return f.within(this)
	case r.Event == record.Decided:
		if !f.about(r) {
			return nil
		}
		kept := &one{record: r}
		if f.wanted != nil {
			kept.text = slices.Clone(text)
		}
		f.mine[r.Seq] = kept
		if f.wanted != nil {
			return nil
		}
		return f.within(this)
	case r.Event.Closes():
		first := f.mine[r.Of]
		delete(f.mine, r.Of)
		if first == nil || f.wanted != nil && !slices.Contains(f.wanted, outcome(r)) {
			return nil
		}
		if f.wanted != nil {
			return f.within(*first, this)
		}
		return f.within(this)
	case !f.about(r) || f.wanted != nil && !slices.Contains(f.wanted, outcome(r)):
		return nil
	}
	return f.within(this)
}

// about reports whether a record that is not the last one of a job is about what the options name.
func (f *filter) about(r *record.Record) bool {
	claims := func(name, want string) bool { return want == "" || r.Claimed[name] == want }
	by := func(uid *uint32) bool { return uid != nil && *uid == *f.uid }
	return (f.uid == nil || by(r.Peer) || by(r.Account)) && claims("principal", f.principal) && claims("tool", f.tool) &&
		claims("request", f.request) && (f.repo == "" || r.Claimed["repo"] == f.repo || r.RepoPath() == filepath.Clean(f.repo))
}

// within returns the records of the period.
func (f *filter) within(list ...one) []one {
	return slices.DeleteFunc(list, func(o one) bool {
		return o.record.Time.Before(f.since) || !f.until.IsZero() && !o.record.Time.Before(f.until)
	})
}

// outcome returns how the request of a record ended, "" if the record does not say.
func outcome(r *record.Record) string {
	switch r.Event {
	case record.Lost:
		return outcomeLost
	case record.Refused:
		return outcomeRefused
	case record.Denied:
		return outcomeDenied
	case record.Finished:
		return r.Status
	}
	return ""
}
