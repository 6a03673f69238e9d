package job

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
)

// A provider acquires what a test has for it.
type provider struct {
	*stage
	leases   []Lease // one after the other; the last again and again
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

// TestAcquire: who needs a session gets one, the job runs in it, and it is given back afterwards.
func TestAcquire(t *testing.T) {
	rooted := request
	rooted.Root = true
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
		r, err := e.Run(t.Context(), &tt.request, l, nil)
		if err != nil || r.Status != Success || r.Session != tt.session || ran.Session != tt.session || r.Anew || (r.Changes != nil) != tt.listed {
			t.Errorf("%s: %+v, %v; ran in %q", tt.name, r, err, ran.Session)
		}
		if !slices.Equal(l.steps, tt.steps) {
			t.Errorf("%s: %q", tt.name, l.steps)
		}
	}
}

// TestNotListed: that changes cannot be listed is no failure of the job.
func TestNotListed(t *testing.T) {
	l := &provider{stage: &stage{decision: behind(), run: succeed}, leases: []Lease{{ID: "s1", Anew: true}}}
	e := l.engine()
	e.Changes = func(context.Context, Spec) (*Changes, error) { return &Changes{}, errors.New("no room") }
	r, err := e.Run(t.Context(), &request, l, nil)
	if err != nil || r.Status != Success || r.Changes != nil || r.ChangesReason != "no room" || !r.Anew {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestLost: a job whose session the supervisor has ended runs in another, once, with the same streams.
func TestLost(t *testing.T) {
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
	record, err := l.engine().Run(t.Context(), &r, l, nil)
	if err != nil || record.Status != Success || !record.Anew || record.Session != "s2" || l.out != "got given" {
		t.Errorf("%+v, %v, %q", record, err, l.out)
	}
	if !slices.Equal(l.returned, []bool{true, false}) {
		t.Errorf("returned %v", l.returned)
	}
	// Again and again is not.
	attempts = 0
	l.leases = []Lease{{ID: "s1"}}
	var refusal *Refusal
	if _, err := l.engine().Run(t.Context(), &r, l, nil); !errors.As(err, &refusal) || attempts != 2 {
		t.Errorf("%v after %d attempts", err, attempts)
	}
}

// TestLostStreamed: input that others write as the job runs is not given to a second one.
func TestLostStreamed(t *testing.T) {
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
		t.Error("a closed pipe was copied")
	}
}

// TestNotLent: a request for which there is no session is in the log, for no job is.
func TestNotLent(t *testing.T) {
	steps := []string{"decide", "streams", "acquire", "audit", "discard"}
	l := &provider{stage: &stage{decision: behind(), run: succeed}, err: &Refusal{Step: "session", Message: "16 sessions are open"}}
	var refusal *Refusal
	if _, err := l.engine().Run(t.Context(), &request, l, nil); !errors.As(err, &refusal) || !slices.Equal(l.steps, steps) {
		t.Errorf("%v, %q", err, l.steps)
	}
	if len(l.claims) != 1 || l.claims[0].Reason != "16 sessions are open" {
		t.Errorf("%+v", l.claims)
	}
	l = &provider{stage: &stage{decision: behind(), run: succeed, audit: errors.New("disk")}, err: errors.New("no loop device")}
	if _, err := l.engine().Run(t.Context(), &request, l, nil); err == nil || err.Error() != "audit: disk" {
		t.Errorf("%v", err)
	}
	l = &provider{stage: &stage{decision: behind(), run: succeed}}
	e := l.engine()
	e.Sessions = nil
	if _, err := e.Run(t.Context(), &request, l, nil); !errors.Is(err, errNoSessions) {
		t.Errorf("%v", err)
	}
}

// TestNotLentCancelled: a client that goes while its session is opened is a record.
func TestNotLentCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := &provider{stage: &stage{decision: behind(), run: succeed}}
	e := l.engine()
	e.Sessions = lendFunc(func() error {
		cancel()
		return ctx.Err()
	})
	r, err := e.Run(ctx, &request, l, nil)
	if err == nil && l.claims != nil && r.Status == Cancelled && r.Message == "cancelled before it started" {
		return
	}
	t.Errorf("%+v, %v, %q", r, err, l.steps)
}

type lendFunc func() error

func (f lendFunc) Acquire(context.Context, *Request, Spec) (Lease, error) { return Lease{}, f() }
