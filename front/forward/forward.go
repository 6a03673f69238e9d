// Package forward sends the records of an audit log to a syslog receiver (RFC 5424) or an OTLP collector.
//
// The audit log on disk is the queue, so a slow receiver delays no supervisor and costs no memory: at most one batch is in it. A
// position in a small file says which record the receiver has got last, as far as its protocol can tell, and a new process
// continues there. After an error the batch is sent again, so a record may arrive twice but is not lost; its seq tells.
//
// Two kinds of records are dropped: those that were removed from the audit log before they could be sent, and those that a
// collector calls unacceptable. They are counted, and the receiver gets a notice in their place.
//
// The receiver is not trusted. Of what it sends only a status or a number is used, and each step has a deadline.
package forward

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"corral/front/forward/status"
	"corral/internal/text"
	"corral/store/audit/reader"
	"corral/store/audit/record"
)

// Bounds of a batch.
const (
	maxCount = 256
	maxBytes = 512 << 10
)

// Options configure a forwarder.
type Options struct {
	// To is the address of the receiver: unix:///PATH, unix-stream:///PATH, tcp://HOST:PORT, tls://HOST:PORT, or the URL of an OTLP
	// collector.
	To      string
	TLS     *tls.Config // authorities and certificate; nil is the default
	Headers string      // for an OTLP collector: "NAME: VALUE" per line
	Host    string      // name of this machine
	Version string      // of corral
	// Open opens a file of the audit log, see reader.OpenFile.
	Open func(seq uint64) (reader.File, error)
	// Position keeps the position of this forwarder. It is empty at first: then all records that there are are sent.
	Position interface {
		io.ReaderAt
		io.WriterAt
	}
	Status io.WriterAt // see package status
	Log    *slog.Logger

	// Poll is the time between two looks for new records, 0 is half a second.
	Poll time.Duration
	// Pause is the pause after the first error, doubled after each, up to 60 times; 0 is a second.
	Pause time.Duration
	// Patience is the timeout of each step of sending; 0 is ten seconds.
	Patience time.Duration
}

// A receiver is the other end.
type receiver interface {
	// send returns nil when the receiver has the batch, as far as its protocol can tell. After an error it has got any part of it.
	send(ctx context.Context, batch []message) error
	close()
}

// A rejection is the error of a receiver that will never accept some of a batch.
type rejection struct {
	count int  // of messages; all, if there is one
	rest  bool // the others were accepted
}

func (r *rejection) Error() string {
	return fmt.Sprintf("the receiver does not accept %d of a batch", r.count)
}

// A message is a record, or a notice about missing ones.
type message struct {
	seq      uint64
	event    string
	instance string
	time     time.Time
	trace    string // id of the request's trace, "" if there is none
	text     string // one line
	notice   bool
}

// A forwarder forwards one audit log.
type forwarder struct {
	Options
	to     receiver
	tail   *reader.Tail
	at     position
	status status.Status
	logged time.Time // when an error was logged last
}

// reportInterval is the minimum time between two log lines about errors.
const reportInterval = time.Minute

// Run forwards records until ctx ends. An error is about the options.
func Run(ctx context.Context, o Options) error {
	for d, least := range map[*time.Duration]time.Duration{&o.Poll: time.Second / 2, &o.Pause: time.Second, &o.Patience: 10 * time.Second} {
		if *d == 0 {
			*d = least
		}
	}
	f := &forwarder{Options: o}
	var err error
	if f.to, err = o.receiver(); err != nil {
		return err
	}
	defer f.to.close()
	if err := f.begin(); err != nil {
		return err
	}
	defer func() { f.tail.Close() }()
	f.Log.Info("forwarding the audit log", "to", o.shown(), "after", f.at.seq)
	for ctx.Err() == nil {
		if !f.step(ctx) {
			wait(ctx, o.Poll)
		}
	}
	f.status.Ended = 1
	return f.status.Write(f.Status)
}

func (o *Options) receiver() (receiver, error) {
	if strings.HasPrefix(o.To, "http") {
		return newCollector(o)
	}
	return newSyslog(o)
}

// shown returns the address without what may be secret.
func (o *Options) shown() string {
	address, _, _ := strings.Cut(o.To, "?")
	return address
}

// begin finds where to continue. The record at the position tells whether this is still the same audit log.
func (f *forwarder) begin() error {
	var err error
	if f.at, err = readPosition(f.Position); err != nil {
		f.Log.Error("the position is not readable: all records are sent", "error", err)
	}
	f.status.Seq = f.at.seq
	f.tail = reader.NewTail(f.Open, f.at.seq)
	if f.at.seq == 0 {
		return f.status.Write(f.Status)
	}
	check := reader.NewTail(f.Open, f.at.seq-1)
	defer check.Close()
	found, err := check.Read(1, 1)
	if err != nil {
		return err
	}
	switch {
	case len(found) > 0 && found[0].Missing > 0: // removed meanwhile; what is missing after it is noticed
	case len(found) == 0 || found[0].Seq != f.at.seq || sha256.Sum256(found[0].Text) != f.at.hash:
		f.Log.Error("the audit log is not the one that was forwarded before, or was changed: all records are sent", "after", f.at.seq)
		f.tail, f.at, f.status.Seq = reader.NewTail(f.Open, 0), position{}, 0
	}
	return f.status.Write(f.Status)
}

// step forwards one batch. It returns false if there is none.
func (f *forwarder) step(ctx context.Context) bool {
	found, err := f.tail.Read(maxCount, maxBytes)
	if err != nil {
		f.report(err, "the audit log cannot be read")
	}
	if len(found) == 0 {
		return false
	}
	var batch []message
	for _, r := range found {
		if r.Missing > 0 {
			if f.at.seq > 0 || len(batch) > 0 { // otherwise the audit log begins there
				batch = append(batch, f.gap(r.Seq-r.Missing, r.Seq-1, r.Missing, "removed from the audit log before they were sent"))
			}
			continue
		}
		batch = append(batch, messageOf(&r))
	}
	if !f.deliver(ctx, batch) {
		return false
	}
	last := found[len(found)-1]
	f.at = position{last.Seq, sha256.Sum256(last.Text)}
	f.status.Seq = f.at.seq
	if err := errors.Join(f.at.write(f.Position), f.status.Write(f.Status)); err != nil {
		f.report(err, "the position cannot be written: a restart sends records again")
	}
	return true
}

// deliver sends a batch until the receiver has it. It returns false if ctx ended before.
func (f *forwarder) deliver(ctx context.Context, batch []message) bool {
	pause := f.Pause
	for ctx.Err() == nil {
		err := f.to.send(ctx, batch)
		var rejected *rejection
		switch {
		case err == nil:
			f.status.Sent += uint64(len(batch))
			f.status.Pending = 0
			return true
		case errors.As(err, &rejected):
			return f.without(ctx, batch, rejected)
		case ctx.Err() != nil:
			return false
		}
		f.status.Failures++
		f.status.Pending = batch[0].time.Unix()
		if err := f.status.Write(f.Status); err != nil {
			f.report(err, "the status cannot be written")
		}
		f.report(err, "the audit log is not forwarded")
		wait(ctx, max(pause, min(retryAfter(err), 60*f.Pause)))
		pause = min(2*pause, 60*f.Pause)
	}
	return false
}

// without delivers a batch with messages that the receiver does not accept: notices stand for those. A notice that is not accepted either
// is left out.
func (f *forwarder) without(ctx context.Context, batch []message, r *rejection) bool {
	const why = "not accepted by the receiver"
	first, last := batch[0], batch[len(batch)-1]
	f.report(r, "records are left out")
	switch {
	case r.rest:
		f.status.Sent += uint64(max(len(batch)-r.count, 0))
		if first.notice && len(batch) == 1 {
			return true
		}
		return f.deliver(ctx, []message{f.gap(first.seq, last.seq, uint64(r.count), why)})
	case len(batch) > 1:
		for _, m := range batch {
			if !f.deliver(ctx, []message{m}) {
				return false
			}
		}
		return true
	case first.notice:
		return true
	}
	return f.deliver(ctx, []message{f.gap(first.seq, first.seq, 1, why)})
}

// gap counts records that are dropped, and returns the notice about them.
func (f *forwarder) gap(from, to, count uint64, why string) message {
	f.status.Dropped += count
	return message{
		seq: to, event: "gap", instance: "export", time: time.Now(), notice: true,
		text: fmt.Sprintf(`{"event":"gap","from":%d,"to":%d,"count":%d,"reason":%q}`, from, to, count, why),
	}
}

// messageOf returns the message with a record. Its text is the line of the audit log. That line is printable unless somebody changed it,
// and it is escaped for that case.
func messageOf(r *reader.Found) message {
	m := message{seq: r.Seq, event: string(r.Event), instance: r.Instance, text: text.Escape(string(r.Text))}
	if parsed, err := record.Decode(r.Text); err == nil {
		m.time = parsed.Time
		if id := parsed.Claimed["request"]; len(id) == 32 {
			if _, err := hex.DecodeString(id); err == nil {
				m.trace = id
			}
		}
	}
	return m
}

// report logs an error, at most once in reportInterval.
func (f *forwarder) report(err error, what string) {
	if now := time.Now(); f.logged.IsZero() || now.Sub(f.logged) >= reportInterval {
		f.logged = now
		f.Log.Error(what, "error", text.Line(err.Error(), 512), "after", f.at.seq, "failures", f.status.Failures, "dropped", f.status.Dropped)
	}
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
