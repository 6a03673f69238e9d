package isolate

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"corral/isolate/host"
	"corral/isolate/wire"
)

// TestRefusalsLogged: a user's refused jobs, which cost the user nothing, get a bounded number of lines in the diagnostic log; jobs
// that ran get one each.
func TestRefusalsLogged(t *testing.T) {
	var out bytes.Buffer
	s := &Supervisor{config: Config{Log: slog.New(slog.NewTextHandler(&out, nil))}, ctx: t.Context()}
	r := &run{s: s, id: "job-1", peer: host.Peer{UID: 1001}}
	const jobs = 5000
	for range jobs {
		r.Log(&wire.Result{Outcome: wire.Refused})
	}
	if n := strings.Count(out.String(), "job ended"); n == 0 || n > jobs/10 {
		t.Errorf("%d lines about %d refused jobs", n, jobs)
	}
	out.Reset()
	for range 500 {
		r.Log(&wire.Result{Outcome: wire.Exited})
	}
	if n := strings.Count(out.String(), "job ended"); n != 500 {
		t.Errorf("%d lines about 500 jobs that ran", n)
	}
}
