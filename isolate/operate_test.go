package isolate

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// TestDrain: a drained supervisor refuses new jobs and sessions, also jobs in a session that is open, and lets jobs that run
// end by themselves. Only root drains, and undoes it.
func TestDrain(t *testing.T) {
	f := newFront(t)
	ss := f.Session(job.SessionSpec{})
	running, err := f.Start(f.Spec("sh", "-c", "echo up; read x; echo $x"))
	if err != nil {
		t.Fatal(err)
	}
	running.Until("up")
	for _, peer := range []host.Peer{{UID: owner}, {UID: 0, Embedded: true}} {
		if err := connect(t, f.s, peer).Drain(false); err == nil || !strings.Contains(err.Error(), "only root may") {
			t.Errorf("%+v: %v", peer, err)
		}
	}
	f.Sh("true")
	root := connect(t, f.s, host.Peer{})
	if err := root.Drain(false); err != nil {
		t.Fatal(err)
	}
	inSession := f.Spec("true")
	inSession.Session, inSession.Workspace = ss.ID, ss.Workspace
	for _, spec := range []job.Spec{f.Spec("true"), inSession} {
		if _, err := f.Try(spec); !refusedFor(err, "drained") {
			t.Errorf("a job: %v", err)
		}
	}
	if _, err := f.C.OpenSession(context.Background(), job.SessionSpec{Repo: f.Repo}); !refusedFor(err, "drained") {
		t.Errorf("a session: %v", err)
	}
	if list, err := root.List(); err != nil || len(list) != 1 {
		t.Errorf("running: %+v, %v", list, err)
	}
	if _, err := running.In.WriteString("well\n"); err != nil {
		t.Error(err)
	}
	if d, err := running.End(); err != nil || d.Out != "up\nwell\n" {
		t.Errorf("the job that ran: %q, %v", d.Out, err)
	}
	eventually(t, func() string {
		if list, err := root.List(); err != nil || len(list) > 0 {
			return "a job is listed that has ended"
		}
		return ""
	})
	if err := f.C.Drain(true); err == nil {
		t.Error("a user ended the drain")
	}
	if err := root.Drain(true); err != nil {
		t.Fatal(err)
	}
	f.Sh("true")
	f.Must(ss, "true")
}

// TestKillByID: a user ends jobs of its own over another connection, and root any; nobody ends another's, nor learns of it.
func TestKillByID(t *testing.T) {
	f := sharedFront(t)
	for _, tt := range []struct {
		peer    host.Peer
		allowed bool
	}{
		{host.Peer{UID: owner}, true},
		{host.Peer{}, true},
		{host.Peer{UID: 1002}, false},
		{host.Peer{UID: owner, Embedded: true}, false},
		{host.Peer{UID: 0, Embedded: true}, false},
		{host.Peer{UID: 100_000, Holder: owner}, false},
	} {
		l := f.Waiting()
		list, err := f.C.List()
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		c := connect(t, f.s, tt.peer)
		err = c.Kill(list[0].Job)
		if tt.allowed != (err == nil) {
			t.Errorf("%+v: %v", tt.peer, err)
		}
		if !tt.allowed {
			none := c.Kill("job-none")
			if err == nil || none == nil || strings.ReplaceAll(err.Error(), list[0].Job, "job-none") != none.Error() {
				t.Errorf("%+v: the errors for a job of another user, %v, and for none, %v, differ", tt.peer, err, none)
			}
			if err := l.Kill(); err != nil {
				t.Error(err)
			}
		}
		if d, err := l.End(); err != nil || d.Status != job.Cancelled {
			t.Errorf("%+v: %+v, %v", tt.peer, d.Result, err)
		}
	}
	if err := f.C.Kill(strings.Repeat("x", wire.MaxName+1)); err == nil {
		t.Error("an id that is too long")
	}
}

// TestListUsage: a list has what running jobs used so far, and what front-ends said about them; lists while jobs end and
// their cgroups go read nothing of other jobs.
func TestListUsage(t *testing.T) {
	f := sharedFront(t)
	spec := f.Spec("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo up; read x")
	spec.Claim = job.Claim{Tool: "runtime_execute", Runtime: "shell", Principal: "token:ci"}
	l, err := f.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	l.Until("up")
	eventually(t, func() string {
		list, err := f.C.List()
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		if e := list[0]; e.Tool != "runtime_execute" || e.Runtime != "shell" || e.Principal != "token:ci" {
			t.Fatalf("%+v", e)
		}
		if list[0].CPU < int64(time.Millisecond) {
			return "no CPU time is listed"
		}
		if list[0].MemoryNow <= 0 {
			return "no memory is listed"
		}
		return ""
	})
	if _, err := l.End(); err != nil {
		t.Error(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c := connect(t, f.s, host.Peer{})
		for range 300 {
			if _, err := c.List(); err != nil && !errors.Is(err, job.ErrUnavailable) {
				t.Error(err)
				return
			}
		}
	}()
	for range 20 {
		f.Sh("true")
	}
	<-done
}

// TestJobIDs: the ids of a user's jobs tell nothing about the jobs of others, or how many there are.
func TestJobIDs(t *testing.T) {
	s := supervise(t)
	form := regexp.MustCompile(`^job-[a-z2-7]{10}$`)
	seen := map[string]bool{}
	for range 100 {
		id := s.newRun(host.Peer{UID: owner}).id
		if seen[id] || !form.MatchString(id) {
			t.Errorf("id %q, and before it %v", id, seen)
		}
		seen[id] = true
	}
}
