package cell

import (
	"time"

	"corral/isolate/scan"
)

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
