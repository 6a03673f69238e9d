package isolate

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/isolate/host"
	"corral/isolate/wire"
)

// TestPlaces: beyond a user's maximum of connections with jobs, a bounded number of connections can ask, and one of them can start jobs
// when there is room. Those of one user take no place of another's.
func TestPlaces(t *testing.T) {
	const most = 3
	s := newServer(most)
	var working, asking []*place
	for n := range most + maxUserAsking {
		p := s.connect(sandboxtest.Owner)
		if p == nil || p.working != (n < most) {
			t.Fatalf("connection %d: %+v", n, p)
		}
		if n < most {
			working = append(working, p)
		} else {
			asking = append(asking, p)
		}
	}
	if s.connect(sandboxtest.Owner) != nil {
		t.Error("more connections than a user may have")
	}
	if p := s.connect(sandboxtest.Owner + 1); p == nil || !p.working {
		t.Errorf("another user: %+v", p)
	}
	sandboxtest.RefusedAt(t, "a job too many", asking[0].forJobs(), "request", 0)
	working[0].leave()
	if err := asking[0].forJobs(); err != nil {
		t.Error(err)
	}
	sandboxtest.RefusedAt(t, "another job too many", asking[1].forJobs(), "request", 0)
	s.adjust(most + 1)
	s.all.working = maxWorking
	sandboxtest.RefusedAt(t, "a job too many of all users", asking[1].forJobs(), "request", 0)
	s.all.asking = maxAsking
	if s.connect(sandboxtest.Owner+2) != nil {
		t.Error("more connections than the maximum")
	}
	s.all = places{working: most + 1, asking: maxUserAsking - 1}
	for _, p := range append(working[1:], asking...) {
		p.leave()
	}
	if len(s.perUser) != 1 || s.all != (places{working: 1}) {
		t.Errorf("after all have left: %v, %v", s.perUser, s.all)
	}
	if err := (*place)(nil).forJobs(); err != nil {
		t.Error(err)
	}
}

// TestRunsBounded: the jobs of one connection are bounded, and a tag is used by one at a time.
func TestRunsBounded(t *testing.T) {
	c := &connection{s: &Supervisor{}, runs: map[uint32]*run{}}
	for tag := range uint32(maxClientRuns) {
		if _, err := c.begin(tag); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.begin(maxClientRuns)
	sandboxtest.RefusedAt(t, "one more on a connection", err, "request", 0)
	if _, err := c.begin(1); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("a tag twice: %v", err)
	}
	c.forget(0)
	if _, err := c.begin(maxClientRuns); err != nil {
		t.Error(err)
	}
}

// TestDroppedLogged: a user whose connections are ended again and again gets a bounded number of lines in the diagnostic log.
func TestDroppedLogged(t *testing.T) {
	var out bytes.Buffer
	s := &Supervisor{config: Config{Log: slog.New(slog.NewTextHandler(&out, nil))}, server: newServer(1)}
	const dropped = 5000
	for range dropped {
		s.logDropped(host.Peer{UID: sandboxtest.Owner}, wire.ErrMalformed)
	}
	if n := strings.Count(out.String(), "client dropped"); n == 0 || n > dropped/10 {
		t.Errorf("%d lines about %d connections", n, dropped)
	}
	out.Reset()
	if s.logDropped(host.Peer{UID: sandboxtest.Owner + 1}, wire.ErrMalformed); out.Len() == 0 {
		t.Error("nothing about another user")
	}
}
