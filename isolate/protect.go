package isolate

import (
	"errors"
	"fmt"
	"os"
	"time"

	"corral/isolate/inside"
	"corral/isolate/scan"
	"corral/isolate/wire"
	"corral/job"
)

// protects is what the operator has protected in the directory at path, whatever is asked for.
func (c *Config) protects(path string) job.Protection {
	most := job.ProtectNone
	for _, r := range c.Repos {
		if r.Path == path {
			most = max(most, r.Protect)
		}
	}
	return most
}

// protection is what a job finds read-only in a repository: what it asks for, and no less than the operator says. One that
// does not write there needs none.
func (c *Config) protection(repo *repo, q *Request) job.Protection {
	most := c.protects(repo.path)
	if repo.common != nil {
		for _, r := range c.ofCommon(repo.common.path) {
			most = max(most, r.Protect)
		}
	}
	switch {
	case !q.writes():
		return job.ProtectNone
	case q.Flags&wire.FlagProtectAll != 0:
		return job.ProtectAll
	case q.Flags&wire.FlagProtectHooks != 0:
		return max(most, job.ProtectHooks)
	}
	return most
}

// keep asks the jail's scanner what a job is to leave alone. The answer is for the stub: nobody here looks into it. nil is
// that there is no protection.
func (j *jail) keep(p job.Protection) (*inside.Kept, error) {
	op := scan.OpKeepHooks
	switch p {
	case job.ProtectNone:
		return nil, nil
	case job.ProtectAll:
		op = scan.OpKeepAll
	}
	a, err := j.watcher().askKept(op)
	switch {
	case errors.Is(err, scan.ErrTooMany):
		return nil, &job.Refusal{
			Step:    "protect",
			Message: fmt.Sprintf("%q has more sensitive paths than can be protected (%d), or more directories than can be looked through", j.repo.path, scan.MaxKept),
			Hint:    "keep nested repositories elsewhere, or run the job with workspace readonly or overlay",
		}
	case err != nil:
		j.dropScanner()
		return nil, &job.Refusal{Step: "protect", Message: fmt.Sprintf("sensitive paths of %q cannot be protected: %v", j.repo.path, err)}
	}
	return &inside.Kept{Count: a.Count, List: a.List}, nil
}

// send sends the stub its plan, and what comes after it.
func (sl *slot) send(plan *inside.Plan, kept *inside.Kept, files []*os.File) error {
	if err := sl.stub.Send(plan.Append(), files...); err != nil || kept == nil {
		return err
	}
	return sl.stub.Send(kept.Append())
}

// askKept sends such a request and waits for its answer, unless the last one still holds.
func (s *scanner) askKept(op scan.Op) (a scan.KeptAnswer, err error) {
	if s != nil {
		if a, again := s.keptAgain(op); again {
			return a, nil
		}
	}
	err = s.exchange(op, time.Time{}, func(b []byte) (err error) {
		if a, err = scan.ReadKept(b); err == nil {
			s.kept[op-scan.OpKeepHooks] = keptAt{true, a, s.quiet.pass()}
		}
		return err
	})
	return a, err
}
