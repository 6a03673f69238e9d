package audit

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// An pendingRecords is the end of a job that could not be written yet: the line from its event on.
type pendingRecords []byte

// account keeps the books after one record: seq is 0 and err says why if it is not written. An end that was not is owed.
// A job that was decided here can owe one, so they are no more than jobs.
func (l *Log) account(event Event, of, seq uint64, rest []byte, err error) {
	switch {
	case event == Decided && seq != 0:
		l.running[seq] = true
	case event != Finished || !l.running[of]:
	case seq != 0:
		delete(l.running, of)
	case !errors.Is(err, errClosed) && !errors.Is(err, errLong):
		delete(l.running, of)
		l.owed = append(l.owed, rest)
	}
}

// flushPending writes what is owed, in its order. Nothing else is written before.
func (l *Log) flushPending() error {
	for len(l.owed) > 0 {
		if err := l.put(Finished, l.owed[0]); err != nil {
			text := fmt.Sprintf("audit: nothing is run as long as the ends of jobs are not written (%d): %s", len(l.owed), strings.TrimPrefix(err.Error(), "audit: "))
			return &failure{text, err}
		}
		l.owed = l.owed[1:]
	}
	l.owed = nil
	return nil
}

// finalFlush tries for the last time to write what is owed. What is not will be lost, says the next supervisor that starts.
func (l *Log) finalFlush(until time.Time) error {
	var last uint64
	err := l.hold(until, func() error {
		err := l.catchUp()
		if err == nil {
			err = l.flushPending()
			last = l.at.seq
		}
		return err
	})
	return errors.Join(err, l.syncer.wrote(last))
}
