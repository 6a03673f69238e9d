package audit

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// A pendingRecord is the end of a job that could not be written yet: the line from its event on.
type pendingRecord []byte

// account updates running and pending after an attempt to write a record. seq is 0 if that failed, with err as the
// reason. Only jobs decided by this Log can leave a pending end, so there are no more of these than jobs.
func (l *Log) account(event Event, of, seq uint64, rest []byte, err error) {
	switch {
	case event == Decided && seq != 0:
		l.running[seq] = true
	case event != Finished || !l.running[of]:
	case seq != 0:
		delete(l.running, of)
	case !errors.Is(err, ErrClosed) && !errors.Is(err, errLong):
		delete(l.running, of)
		l.pending = append(l.pending, rest)
	}
}

// flushPending writes the pending ends in order. No other record is written before them.
func (l *Log) flushPending() error {
	for len(l.pending) > 0 {
		if err := l.put(Finished, l.pending[0]); err != nil {
			text := fmt.Sprintf("audit: refusing new jobs: %d %q records could not be written: %s", len(l.pending), Finished,
				strings.TrimPrefix(err.Error(), "audit: "))
			return &failure{Text: text, Cause: err}
		}
		l.pending = l.pending[1:]
	}
	l.pending = nil
	return nil
}

// finalFlush tries to write the pending ends a last time. The next supervisor to start records the remaining jobs as
// lost.
func (l *Log) finalFlush(until time.Time) error {
	var last uint64
	err := l.hold(until, func() error {
		err := l.catchUp()
		if err == nil {
			err = l.flushPending()
			last = l.at.Seq
		}
		return err
	})
	return errors.Join(err, l.syncer.Wrote(last))
}
