package client

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/isolate/wire"
	"corral/job"
)

var _ job.Auditor = (*Client)(nil)

// TestDenied: the denial is sent with its claim, and the answer's error is returned.
func TestDenied(t *testing.T) {
	sandboxtest.Leaks(t)
	c, s := supervisor(t)
	claim := job.Claim{Tool: "runtime_execute", Reason: strings.Repeat("x", 5*job.MaxClaim)}
	for _, says := range []string{"", "audit: no space left\nhint: make room"} {
		done := make(chan error)
		go func() { done <- c.Denied(t.Context(), claim, job.Spec{}) }()
		head, body, _ := next(t, s)
		m, err := wire.Decode[wire.Denied](body)
		want := claim
		want.Reason = want.Reason[:4*job.MaxClaim]
		if head.Op != wire.OpDenied || err != nil || m.Claim != want {
			t.Errorf("%+v %+v, %v", head, m, err)
		}
		if err := s.Send(wire.Encode(&wire.Answer{Error: says}, head.Tag)); err != nil {
			t.Fatal(err)
		}
		if err := <-done; says == "" && err != nil || says != "" && (err == nil || err.Error() != says) {
			t.Errorf("%q: %v", says, err)
		}
	}
}

// TestDeniedUnanswered: Denied returns when its context ends, and fails when the connection does.
func TestDeniedUnanswered(t *testing.T) {
	c, s := supervisor(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Denied(ctx, job.Claim{}, job.Spec{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	done := make(chan error)
	go func() { done <- c.Denied(t.Context(), job.Claim{}, job.Spec{}) }()
	next(t, s)
	next(t, s)
	s.Close()
	if err := <-done; !errors.Is(err, job.ErrUnavailable) {
		t.Error(err)
	}
	if err := c.Denied(t.Context(), job.Claim{}, job.Spec{}); !errors.Is(err, job.ErrUnavailable) {
		t.Error(err)
	}
}

// TestState: State returns the one descriptor of the answer, or an error.
func TestState(t *testing.T) {
	sandboxtest.Leaks(t)
	c, s := supervisor(t)
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for _, tt := range []struct {
		name   string
		answer []byte
		files  []*os.File
		want   string // of the error
	}{
		{"a directory", wire.Encode(&wire.Answer{}, 0), []*os.File{dir}, ""},
		{"none", wire.Encode(&wire.Answer{}, 0), nil, "must pass one directory"},
		{"two", wire.Encode(&wire.Answer{}, 0), []*os.File{dir, dir}, "must pass one directory"},
		{"an error", wire.Encode(&wire.Answer{Error: "not yours"}, 0), nil, "not yours"},
		{"an error and a directory", wire.Encode(&wire.Answer{Error: "not yours"}, 0), []*os.File{dir}, "not yours"},
		{"another answer", wire.Encode(wire.Empty(wire.OpEnd), 0), []*os.File{dir}, "malformed"},
	} {
		type result struct {
			f   *os.File
			err error
		}
		done := make(chan result)
		go func() {
			f, err := c.State(1000)
			done <- result{f, err}
		}()
		head, body, _ := next(t, s)
		if m, err := wire.Decode[wire.State](body); head.Op != wire.OpState || err != nil || m.UID != 1000 {
			t.Errorf("%+v %+v, %v", head, m, err)
		}
		tt.answer[4] = byte(head.Tag)
		if err := s.Send(tt.answer, tt.files...); err != nil {
			t.Fatal(err)
		}
		r := <-done
		if tt.want == "" {
			if r.err != nil {
				t.Fatalf("%s: %v", tt.name, r.err)
			}
			a, _ := r.f.Stat()
			b, _ := dir.Stat()
			if !os.SameFile(a, b) {
				t.Errorf("%s: not the directory that was passed", tt.name)
			}
			r.f.Close()
		} else if r.f != nil || r.err == nil || !strings.Contains(r.err.Error(), tt.want) {
			t.Errorf("%s: %v, %v", tt.name, r.f, r.err)
		}
	}
}
