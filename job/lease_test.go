package job

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"syscall"
	"testing"
)

// A provider returns the leases, or the error, that a test gives it.
type provider struct {
	*stage
	leases   []Lease // returned in turn, starting over after the last
	err      error
	returned []bool
}

func (l *provider) Acquire(context.Context, *Request, Spec) (Lease, error) {
	l.note("acquire")
	if l.err != nil {
		return Lease{}, l.err
	}
	lease := l.leases[0]
	l.leases = append(l.leases[1:], lease)
	lease.Return = func(gone bool) {
		l.note("return")
		l.returned = append(l.returned, gone)
	}
	return lease, nil
}

func (l *provider) engine() *Engine {
	e := l.stage.engine()
	e.Sessions = l
	return e
}

func behind() Decision {
	d := allowed()
	d.Spec.Workspace = Overlay
	return d
}

// TestAcquire: a request that needs a session acquires one, its job runs in it, and the session is returned
// afterwards.
func TestAcquire(t *testing.T) {
	rooted := request
	rooted.Root = true
	shared := request
	shared.Share = true
	list := func(_ context.Context, spec Spec) (*Changes, error) {
		return &Changes{Bytes: int64(len(spec.Session))}, nil
	}
	for _, tt := range []struct {
		name     string
		request  Request
		decision Decision
		session  string
		listed   bool
		steps    []string
	}{
		{"direct", request, allowed(), "", false, []string{"decide", "streams", "run", "finish", "discard"}},
		{"overlay", request, behind(), "s1", true, []string{"decide", "streams", "acquire", "run", "return", "finish", "discard"}},
		{"shared", shared, allowed(), "s1", false, []string{"decide", "streams", "acquire", "run", "return", "finish", "discard"}},
		{"root", rooted, allowed(), "s1", false, []string{"decide", "streams", "acquire", "run", "return", "finish", "discard"}},
		{"root with an overlay", rooted, behind(), "s1", false, []string{"decide", "streams", "acquire", "run", "return", "finish", "discard"}},
	} {
		var ran Spec
		l := &provider{stage: &stage{decision: tt.decision}, leases: []Lease{{ID: "s1"}}}
		l.run = func(_ context.Context, spec Spec, _ Stdio) (Result, error) {
			ran = spec
			return Result{Status: Success}, nil
		}
		e := l.engine()
		e.Changes = list
		r, err := e.Run(t.Context(), &tt.request, l, Hooks{})
		if err != nil || r.Status != Success || r.Session != tt.session || ran.Session != tt.session || r.SessionReplaced != "" || (r.Changes != nil) != tt.listed {
			t.Errorf("%s: %+v, %v; ran in %q", tt.name, r, err, ran.Session)
		}
		if !slices.Equal(l.steps, tt.steps) {
			t.Errorf("%s: %q", tt.name, l.steps)
		}
	}
}

// TestChangesNotListed: the job succeeds even if its changes cannot be listed.
func TestChangesNotListed(t *testing.T) {
	l := &provider{stage: &stage{decision: behind(), run: succeed}, leases: []Lease{{ID: "s1", Replaced: SessionForRoom}}}
	e := l.engine()
	e.Changes = func(context.Context, Spec) (*Changes, error) { return &Changes{}, errors.New("no room") }
	r, err := e.Run(t.Context(), &request, l, Hooks{})
	if err != nil || r.Status != Success || r.Changes != nil || r.ChangesReason != "no room" || r.SessionReplaced != SessionForRoom {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRetriesLostSession: a job whose session the supervisor has ended runs in another one, with the same streams,
// but is retried only once.
func TestRetriesLostSession(t *testing.T) {
	r := request
	r.Root, r.Stdin = true, "given"
	attempts := 0
	l := &provider{stage: &stage{decision: allowed()}, leases: []Lease{{ID: "s1"}, {ID: "s2"}}}
	l.run = func(_ context.Context, spec Spec, stdio Stdio) (Result, error) {
		if attempts++; spec.Session == "s1" {
			return Result{}, &Refusal{Step: "session", Message: "no session"}
		}
		b, err := io.ReadAll(stdio.Stdin)
		_, err2 := stdio.Stdout.WriteString("got " + string(b))
		return Result{Status: Success}, errors.Join(err, err2)
	}
	record, err := l.engine().Run(t.Context(), &r, l, Hooks{})
	if err != nil || record.Status != Success || record.SessionReplaced == "" || record.Session != "s2" || l.out != "got given" {
		t.Errorf("%+v, %v, %q", record, err, l.out)
	}
	if !slices.Equal(l.returned, []bool{true, false}) {
		t.Errorf("returned %v", l.returned)
	}
	// A second loss is not retried.
	attempts = 0
	l.leases = []Lease{{ID: "s1"}}
	var refusal *Refusal
	if _, err := l.engine().Run(t.Context(), &r, l, Hooks{}); !errors.As(err, &refusal) || attempts != 2 {
		t.Errorf("%v after %d attempts", err, attempts)
	}
}

// TestRoomForSession: a session whose layer the disk has no room for is not lost. If another one gives way, the job runs in it.
func TestRoomForSession(t *testing.T) {
	for _, idle := range []int{0, 1} { // sessions that can give way
		r := request
		r.Root = true
		left := idle
		room := func() bool { left--; return left >= 0 }
		l := &provider{stage: &stage{decision: allowed()}, leases: []Lease{{ID: "s1", MakeRoom: room}}}
		l.run = func(context.Context, Spec, Stdio) (Result, error) {
			if left == idle {
				return Result{}, &Refusal{Step: "session", Errno: int(syscall.ENOSPC), Message: "no room for a layer"}
			}
			return Result{Status: Success}, nil
		}
		record, err := l.engine().Run(t.Context(), &r, l, Hooks{})
		var refusal *Refusal
		if (idle == 0) != errors.As(err, &refusal) || idle == 1 && (record.SessionReplaced != "" || record.Session != "s1") {
			t.Errorf("%d idle: %+v, %v", idle, record, err)
		}
		if slices.Contains(l.returned, true) {
			t.Errorf("%d idle: the session counts as lost", idle)
		}
	}
}

// TestStreamedInputIsNotRetried: streamed input is not duplicated for a second attempt, since its writer must notice
// that nobody reads it.
func TestStreamedInputIsNotRetried(t *testing.T) {
	read, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, tt := range []struct {
		request Request
		stdio   Stdio
		ok      bool
	}{
		{Request{Streamed: true}, Stdio{Stdin: read}, false},
		{Request{Stdin: "x"}, Stdio{Stdin: read}, true},
		{Request{}, Stdio{Terminal: func(*os.File) {}}, true},
	} {
		again, ok := tt.stdio.again(&tt.request)
		if ok != tt.ok || (again.Stdin != nil) != (ok && tt.stdio.Stdin != nil) || (again.Terminal != nil) != (tt.stdio.Terminal != nil) {
			t.Errorf("%+v: %+v, %t", tt.request, again, ok)
		}
		again.close()
	}
	read.Close()
	if _, ok := (Stdio{Stdin: read}).again(&Request{Stdin: "x"}); ok {
		t.Error("a closed pipe was duplicated")
	}
}

// TestNoSessionIsAudited: a request for which no session can be acquired is audited as denied.
func TestNoSessionIsAudited(t *testing.T) {
	steps := []string{"decide", "streams", "acquire", "audit", "discard"}
	l := &provider{stage: &stage{decision: behind(), run: succeed}, err: &Refusal{Step: "session", Message: "16 sessions are open"}}
	var refusal *Refusal
	if _, err := l.engine().Run(t.Context(), &request, l, Hooks{}); !errors.As(err, &refusal) || !slices.Equal(l.steps, steps) {
		t.Errorf("%v, %q", err, l.steps)
	}
	if len(l.claims) != 1 || l.claims[0].Reason != "16 sessions are open" {
		t.Errorf("%+v", l.claims)
	}
	l = &provider{stage: &stage{decision: behind(), run: succeed, audit: errors.New("disk")}, err: errors.New("no loop device")}
	if _, err := l.engine().Run(t.Context(), &request, l, Hooks{}); err == nil || err.Error() != "audit: disk" {
		t.Errorf("%v", err)
	}
	l = &provider{stage: &stage{decision: behind(), run: succeed}}
	e := l.engine()
	e.Sessions = nil
	if _, err := e.Run(t.Context(), &request, l, Hooks{}); !errors.Is(err, errNoSessions) {
		t.Errorf("%v", err)
	}
}

// TestCancelledWhileAcquiring: canceling while the session is opened yields a Cancelled record.
func TestCancelledWhileAcquiring(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := &provider{stage: &stage{decision: behind(), run: succeed}}
	e := l.engine()
	e.Sessions = acquireFunc(func() error {
		cancel()
		return ctx.Err()
	})
	r, err := e.Run(ctx, &request, l, Hooks{})
	if err == nil && l.claims != nil && r.Status == Cancelled && r.Message == "cancelled before it started" {
		return
	}
	t.Errorf("%+v, %v, %q", r, err, l.steps)
}

type acquireFunc func() error

func (f acquireFunc) Acquire(context.Context, *Request, Spec) (Lease, error) { return Lease{}, f() }
