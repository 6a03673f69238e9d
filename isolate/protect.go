package isolate

import (
	"errors"
	"fmt"
	"os"
	"time"

	"corral/isolate/inside"
	"corral/isolate/scan"
	"corral/job"
)

// pathsToProtect asks the jail's scanner for the paths to protect. The answer is passed on to the stub unread. It is
// nil without protection.
func (j *jail) pathsToProtect(p job.Protection) (*inside.Kept, error) {
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
			Message: fmt.Sprintf("%q has more sensitive paths than can be protected (%d), or too many directories to search", j.repo.Path, scan.MaxKept),
			Hint:    "keep nested repositories elsewhere, or run the job with workspace readonly or overlay",
		}
	case err != nil:
		j.dropScanner()
		return nil, &job.Refusal{Step: "protect", Message: fmt.Sprintf("sensitive paths of %q cannot be protected: %v", j.repo.Path, err)}
	}
	return &inside.Kept{Count: a.Count, List: a.List}, nil
}

// send sends the stub its plan and, if there is one, the list of paths to protect.
func (sl *slot) send(plan *inside.Plan, kept *inside.Kept, files []*os.File) error {
	if err := sl.stub.Send(plan.Append(), files...); err != nil || kept == nil {
		return err
	}
	return sl.stub.Send(kept.Append())
}

// askKept requests the paths to protect, unless the last answer still holds.
func (s *scanner) askKept(op scan.Op) (a scan.KeptAnswer, err error) {
	if s != nil {
		if a, again := s.cachedAnswer(op); again {
			return a, nil
		}
	}
	err = s.exchange(op, time.Time{}, func(b []byte) (err error) {
		if a, err = scan.ReadKept(b); err == nil {
			s.kept[op-scan.OpKeepHooks] = cachedKept{true, a, s.state.pass()}
		}
		return err
	})
	return a, err
}
