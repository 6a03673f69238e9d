package isolate

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/directory"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
	"corral/store/audit"
)

// logged returns the records of the audit log in a state directory, which must verify without notes.
func logged(t testing.TB, state string) []*audit.Record {
	t.Helper()
	r, err := audit.OpenReader(filepath.Join(state, "audit"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if report, err := r.Verify(); err != nil || !report.OK() || len(report.Notes) > 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	var all []*audit.Record
	for l, err := range r.Lines(0) {
		if err != nil {
			t.Fatal(err)
		}
		record, err := l.Record()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, record)
	}
	return all
}

// of returns the records of one event.
func of(all []*audit.Record, event audit.Event) []*audit.Record {
	return slices.DeleteFunc(slices.Clone(all), func(r *audit.Record) bool { return r.Event != event })
}

// TestAudit: each job has a record before it runs and one when it ends, with the supervisor's data; the front-end's
// claims are recorded separately.
func TestAudit(t *testing.T) {
	f := newFront(t)
	claim := job.Claim{Tool: "runtime_execute", Principal: "user:ada\x1b[2J", Repo: "api", Reason: strings.Repeat("x", 2000)}
	memory := int64(32 << 20)
	for _, tt := range []struct {
		name   string
		change func(*job.Spec)
		want   string // status, exit code, signal, limit, step
	}{
		{"success", func(s *job.Spec) { s.Claim, s.Workspace, s.Dir = claim, job.ReadOnly, "." }, "success 0 0 - -"},
		{"failure", func(s *job.Spec) { s.Args = []string{"sh", "-c", "exit 3"} }, "failure 3 0 - -"},
		{"signal", func(s *job.Spec) { s.Args = []string{"sh", "-c", "kill -TERM $$"} }, "failure 0 15 - -"},
		{"timeout", func(s *job.Spec) { s.Args, s.Limits.Wall = []string{"sleep", "60"}, 50*time.Millisecond }, "timeout 0 15 - -"},
		{"memory", func(s *job.Spec) {
			s.Args, s.Limits.Memory = []string{"perl", "-e", `$x = "x" x 500_000_000`}, memory
		}, "failure 0 9 memory -"},
		{"no program", func(s *job.Spec) { s.Args = []string{"/no/such"} }, "refused 0 0 - exec"},
		{"no directory", func(s *job.Spec) { s.Dir = "missing" }, "refused 0 0 - cwd"},
	} {
		before := len(logged(t, f.s.config.StateDir))
		spec := f.Spec("true")
		tt.change(&spec)
		_, _ = f.Try(spec) // other tests check the result
		news := logged(t, f.s.config.StateDir)[before:]
		if len(news) != 2 || news[0].Event != audit.Decided || news[1].Event != audit.Finished || news[1].Of != news[0].Seq {
			t.Errorf("%s: %d records: %+v", tt.name, len(news), news)
			continue
		}
		d, e := news[0], news[1]
		limits := f.s.config.Defaults
		if tt.name == "memory" {
			limits.Memory = memory
		}
		if d.Repo != f.Repo || *d.Peer != owner || d.Embedded || d.Instance != f.s.config.Instance || d.Profile != "default" ||
			d.Limits["memory"] != limits.Memory || d.Limits["pids"] != 512 || d.Job != e.Job || *e.Peer != owner {
			t.Errorf("%s: %+v", tt.name, d)
		}
		got := fmt.Sprintf("%s %d %d %s %s", e.Status, e.Exit, e.Signal, dash(e.Limit), dash(e.Step))
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if e.Status == "success" && (d.Workspace != "readonly" || d.Dir != "." || e.Usage["wall_ns"] <= 0 || e.Usage["peak_memory"] <= 0 || e.Cgroup == "" ||
			d.Claimed["principal"] != claim.Principal || d.Claimed["tool"] != claim.Tool || len(d.Claimed["reason"]) != 4*job.MaxClaim) {
			t.Errorf("%+v\n%+v", d, e)
		}
	}
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// TestAuditRefusedJob: a job that is refused before the decision gets a single record.
func TestAuditRefusedJob(t *testing.T) {
	f := newFront(t)
	q := f.goodRequest()
	q.Profile, q.Claim.Tool = "none", "run"
	if r, err := f.send(q); err != nil || r.Outcome != wire.Refused {
		t.Fatal(r, err)
	}
	spec := f.Spec("true")
	spec.Repo = "/usr"
	if _, err := f.Try(spec); err == nil {
		t.Fatal("a job in /usr was accepted")
	}
	all := logged(t, f.s.config.StateDir)
	refused := of(all, audit.Refused)
	if len(refused) != 2 || len(all) != 3 || refused[0].Step != "profile" || refused[0].Claimed["tool"] != "run" || refused[1].Step != "repo" ||
		refused[1].Repo != "/usr" || refused[0].Job == refused[1].Job {
		t.Errorf("%+v", refused)
	}
}

func TestAuditDeniedRequest(t *testing.T) {
	for _, each := range []bool{false, true} {
		f := newFront(t, func(c *Config) { c.Audit.Each = each })
		claim := job.Claim{Tool: "runtime_execute", Reason: "Runtime \"node\" is not allowed"}
		var work sync.WaitGroup
		for range 200 {
			work.Go(func() {
				if err := f.C.Denied(t.Context(), claim, job.Spec{}); err != nil {
					t.Error(err)
				}
			})
		}
		work.Wait()
		got := of(logged(t, f.s.config.StateDir), audit.Denied)
		if len(got) != 200 || *got[0].Peer != owner || got[0].Claimed["reason"] != claim.Reason || got[0].Job != "" {
			t.Errorf("%d: %+v", len(got), got[0])
		}
	}
}

// TestAuditRecording: records have as much of a program as the operator wants, whatever a front-end claims.
func TestAuditRecording(t *testing.T) {
	for _, want := range []job.Recording{job.RecordHash, job.RecordArgv, job.RecordCode} {
		f := newFront(t, func(c *Config) { c.Audit.Record = want })
		spec := f.Spec("/bin/sh", "-c", "true # token=abcdefgh12345678")
		spec.Files = []job.File{{Path: "/tmp/job/code", Content: "# the code\n"}}
		if d := f.Run(spec); d.Status != job.Success {
			t.Fatalf("%+v", d)
		}
		hostile := job.Claim{Argv: "more than the supervisor wants", Source: "to have"}
		if err := f.s.denied(host.Peer{UID: owner}, hostile); err != nil {
			t.Fatal(err)
		}
		all := logged(t, f.s.config.StateDir)
		ran, denied := of(all, audit.Decided)[0].Claimed, of(all, audit.Denied)[0].Claimed
		argv, source := "", ""
		if want >= job.RecordArgv {
			argv = "/bin/sh -c 'true # token=[REDACTED:secret]'"
		}
		if want >= job.RecordCode {
			source = "# the code\n"
		}
		if ran["argv"] != argv || ran["source"] != source || (denied["argv"] != "") != (argv != "") || (denied["source"] != "") != (source != "") {
			t.Errorf("%v: %q, denied %q", want, ran, denied)
		}
	}
}

// TestDroppedAccount: the record of dropped requests names the account behind an embedded supervisor.
func TestDroppedAccount(t *testing.T) {
	c := config(t)
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	peer := host.Peer{Embedded: true, Account: &directory.Account{UID: owner, GID: owner}}
	for range denialBurst + 100 {
		s.allowDenial(peer)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	dropped := of(logged(t, c.StateDir), audit.Dropped)
	if len(dropped) != 1 || !dropped[0].Embedded || dropped[0].Account == nil || *dropped[0].Account != owner {
		t.Errorf("%+v", dropped)
	}
}

func TestDenialLimiter(t *testing.T) {
	var d denialLimiter
	now := time.Now()
	a, b := host.Peer{UID: 1}, host.Peer{UID: 2}
	take := func(peer host.Peer, want string) {
		t.Helper()
		allowed, first := d.allow(peer, now)
		if got := fmt.Sprint(allowed, first); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for range denialBurst {
		take(a, "true false")
	}
	take(a, "false true")
	take(a, "false false")
	take(b, "true false")
	flushed := func() (s string) {
		d.flush(func(p host.Peer, n uint64, _ time.Time) { s += fmt.Sprint(p.UID, " ", n, ";") })
		return s
	}
	if got := flushed(); got != "1 2;" {
		t.Error(got)
	}
	if got := flushed(); got != "" {
		t.Error(got)
	}
	take(a, "false true")
	now = now.Add(time.Second)
	for range denialRate {
		take(a, "true false")
	}
	take(a, "false false")
	now = now.Add(-time.Hour) // a clock that is set back neither adds nor removes tokens
	take(a, "false false")
	now = now.Add(48 * time.Hour)
	take(host.Peer{UID: 3}, "true false")
	if len(d.buckets) != 2 { // b was forgotten; a still has a count to be flushed
		t.Errorf("%v", d.buckets)
	}
}

// TestAuditRecordsLostJobs: the next supervisor records the running jobs of a killed one as lost, but not those of a
// running one.
func TestAuditRecordsLostJobs(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	f := newFront(t, func(c *Config) { c.StateDir = state })
	l := f.Waiting()
	instance, _ := kill(t, victim, func(c *Config) { c.StateDir = state })
	if n := len(of(logged(t, state), audit.Lost)); n != 0 {
		t.Errorf("%d jobs recorded as lost too early", n)
	}
	supervise(t, func(c *Config) { c.StateDir = state })
	supervise(t, func(c *Config) { c.StateDir = state })
	all := logged(t, state)
	lost := of(all, audit.Lost)
	if len(lost) != 1 || lost[0].Instance != instance || all[lost[0].Of-1].Instance != instance || all[lost[0].Of-1].Event != audit.Decided {
		t.Errorf("%+v", lost)
	}
	if err := l.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.End(); err != nil {
		t.Fatal(err)
	}
	all = logged(t, state)
	if last := all[len(all)-1]; last.Event != audit.Finished || last.Instance != f.s.config.Instance || last.Status != "cancelled" {
		t.Errorf("%+v", last)
	}
}

// TestCloseWithClientNotReading: a client that sends requests and reads no answers does not keep the supervisor from
// ending.
func TestCloseWithClientNotReading(t *testing.T) {
	c := config(t)
	c.switches.patience = 50 * time.Millisecond
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, s, host.Peer{UID: owner})
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for range 4 * 64 * 8 {
			if err := conn.Send(wire.Encode(&wire.Denied{}, 1)); err != nil {
				return // the supervisor has dropped the connection
			}
		}
	}()
	<-sent
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the supervisor did not end")
	}
}

// TestAuditLogLocked: while another process holds the audit log's lock no job runs, and the refusal names that
// process. Ends that were not recorded meanwhile are recorded before the next job.
func TestAuditLogLocked(t *testing.T) {
	f := newFront(t, func(c *Config) { c.Log, c.switches.locked = slog.New(slog.DiscardHandler), 200*time.Millisecond })
	l := f.Waiting()
	lock, err := os.OpenFile(filepath.Join(f.s.config.StateDir, "audit", "lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	// If the supervisor waits without a timeout the test fails instead of hanging.
	timer := time.AfterFunc(time.Minute, func() { _ = unix.Flock(int(lock.Fd()), unix.LOCK_UN) })
	defer timer.Stop()
	if err := l.Kill(); err != nil {
		t.Fatal(err)
	}
	_, err = f.Try(f.Spec("sh", "-c", "touch ran"))
	var refusal *job.Refusal
	if !errors.As(err, &refusal) || refusal.Step != "audit" || refusal.Errno != int(unix.EAGAIN) || refusal.Hint == "" ||
		!strings.Contains(refusal.Message, fmt.Sprintf("process %d keeps the audit log locked", os.Getpid())) {
		t.Errorf("%+v", err)
	}
	if _, err := l.End(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	if exists(filepath.Join(f.Repo, "ran")) {
		t.Error("a job ran without a record")
	}
	f.Sh("true")
	all := logged(t, f.s.config.StateDir)
	last := all[len(all)-3:]
	if last[0].Event != audit.Finished || last[0].Status != "cancelled" || last[1].Event != audit.Decided || last[2].Event != audit.Finished {
		t.Errorf("%+v", last)
	}
}
