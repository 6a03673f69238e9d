package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/fronttest"
	"corral/internal/test/sandboxtest"
	"corral/isolate/client"
	"corral/job"
	"corral/store/audit"
)

// How what a client does ends when a function panics meanwhile.
const (
	internal   = "an internal error"
	hangUp     = "the end of the connection"
	beside     = "a result: the panic is not in the job's own goroutine, or after its end"
	eitherWay  = "an internal error, a result, or the end of the jail: several goroutines call the function, and the first panics"
	internally = "internal error of the supervisor"
)

// steps are where a panic is injected, in the order of a job, and what comes of it.
var steps = []struct {
	at     string
	during func(v *victim) error
	then   string
}{
	{"wire.Run.fields", (*victim).job, internal},
	{"isolate.connection.run", (*victim).job, internal},
	{"isolate.connection.begin", (*victim).job, internal},
	{"isolate.connection.serveRun", (*victim).job, hangUp},
	{"isolate.Supervisor.acquire", (*victim).job, internal},
	{"isolate.jobTable.register", (*victim).job, internal},
	{"isolate.Supervisor.execute", (*victim).job, internal},
	{"admit.Served.Check", (*victim).job, internal},
	{"admit.Served.Serves", (*victim).job, internal},
	{"isolate.Supervisor.authorize", (*victim).job, internal},
	{"admit.Served.Clamp", (*victim).job, internal},
	{"admit.Served.Access", (*victim).job, internal},
	{"isolate.network.jail", (*victim).job, internal},
	{"isolate.network.opening", (*victim).job, internal},
	{"isolate.run.connect", (*victim).job, internal},
	{"isolate.jobTable.setRepo", (*victim).job, internal},
	{"cell.Jails.Enter", (*victim).job, internal},
	{"cell.Jail.build", (*victim).newJail, internal},
	{"cell.roots.make", (*victim).newJail, internal},
	{"cell.makeDevices", (*victim).newJail, internal},
	{"cell.Jail.start", (*victim).newJail, internal},
	{"cell.Jail.startScanner", (*victim).newJail, internal},
	{"cell.Jail.TakeSlot", (*victim).job, internal},
	{"cell.Slot.preparation", (*victim).newJail, eitherWay},
	{"cell.Slot.confine", (*victim).newJail, eitherWay},
	{"isolate.Supervisor.inSlot", (*victim).job, internal},
	{"isolate.network.use", (*victim).job, internal},
	{"cell.Slot.UseDoor", (*victim).job, internal},
	{"door.Doors.Open", (*victim).job, internal},
	{"isolate.Supervisor.runIn", (*victim).job, internal},
	{"cell.Jail.OpenWindow", (*victim).job, internal},
	{"isolate.Supervisor.watchUse", (*victim).job, internal},
	{"cell.Slot.Start", (*victim).job, internal},
	{"cell.Slot.workspace", (*victim).job, internal},
	{"cell.Slot.tool", (*victim).edit, internal},
	{"isolate.Supervisor.watch", (*victim).job, internal},
	{"isolate.run.setSlot", (*victim).job, internal},
	{"isolate.follow", (*victim).job, internal},
	{"cell.Slot.Report", (*victim).job, internal},
	{"cell.Slot.Signal", (*victim).signaled, beside},
	{"cell.Slot.Kill", (*victim).killed, beside},
	{"isolate.run.beginEnd", (*victim).late, beside},
	{"isolate.run.finish", (*victim).job, internal},
	{"isolate.doorUse.close", (*victim).job, internal},
	{"door.Door.Close", (*victim).job, beside},
	{"cell.Slot.Account", (*victim).job, internal},
	{"cell.Jail.Sensitive", (*victim).job, internal},
	{"cell.scanner.exchange", (*victim).job, internal},
	{"cell.pool.release", (*victim).job, beside},
	{"cell.Slot.giveBack", (*victim).job, beside},
	{"cell.pool.reconcile", (*victim).job, beside},
	{"sessions.Manager.open", (*victim).open, internal},
	{"sessions.Session.pinRepo", (*victim).open, internal},
	{"sessions.Session.OpenLayer", (*victim).open, internal},
	{"sessions.Manager.Enter", (*victim).session, internal},
	{"isolate.Supervisor.authorizeInSession", (*victim).session, internal},
	{"sessions.Session.Admit", (*victim).session, internal},
	{"cell.Jail.WatchLayer", (*victim).session, internal},
	{"isolate.jobTable.entries", (*victim).list, internal},
	{"isolate.connection.facts", (*victim).list, internal},
}

// bystanders are jobs that run all the time.
const bystanders = 200

// A victim is a client whose jobs panics end.
type victim struct {
	*fronttest.Front
	socket string
}

// connect opens another connection, and makes it the victim's.
func (v *victim) connect() {
	v.T.Helper()
	runtime.LockOSThread() // the kernel notes the thread's user at connect(2)
	defer runtime.UnlockOSThread()
	become := func(uid uintptr) {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uid, ^uintptr(0)); errno != 0 {
			panic(errno)
		}
	}
	become(sandboxtest.Owner)
	c, err := client.Dial(v.socket)
	become(0)
	if err != nil {
		v.T.Fatalf("the supervisor is gone: %v", err)
	}
	v.T.Cleanup(func() { c.Close() })
	v.C = c
}

func (v *victim) run(change func(s *job.Spec)) error {
	spec := v.Spec("true")
	change(&spec)
	_, err := v.Try(spec)
	return err
}

func (v *victim) job() error { return v.run(func(*job.Spec) {}) }

func (v *victim) newJail() error {
	v.Repo = sandboxtest.NewRepo(v.T)
	return v.job()
}

func (v *victim) late() error {
	return v.run(func(s *job.Spec) { s.Args, s.Limits.Wall = []string{"sleep", "1000"}, 50*time.Millisecond })
}

func (v *victim) edit() error {
	return v.run(func(s *job.Spec) { s.Args, s.Tool = []string{"edit"}, job.ToolEdit })
}

// ends runs a job that waits, and ignores SIGTERM, and does something to it.
func (v *victim) ends(how func(l *fronttest.Live) error) error {
	l, err := v.Start(v.Spec("sh", "-c", "trap '' TERM; echo ready; exec cat"))
	if err != nil {
		return err
	}
	l.Until("ready")
	if err := how(l); err != nil {
		return err
	}
	_, err = l.Wait()
	return err
}

func (v *victim) killed() error { return v.ends(func(l *fronttest.Live) error { return l.Kill() }) }

func (v *victim) signaled() error {
	return v.ends(func(l *fronttest.Live) error { return l.Signal(9, false) })
}

func (v *victim) open() error {
	ss, err := v.C.OpenSession(context.Background(), job.SessionSpec{Repo: v.Repo, Disk: fronttest.Small})
	if err == nil {
		_, err = v.C.CloseSession(context.Background(), ss.ID, false)
	}
	return err
}

func (v *victim) session() error {
	ss, err := v.C.OpenSession(context.Background(), job.SessionSpec{Repo: v.Repo, Disk: fronttest.Small})
	if err != nil {
		return err
	}
	err = v.run(func(s *job.Spec) { s.Session = ss.ID })
	_, _ = v.C.CloseSession(context.Background(), ss.ID, false) // it may have ended
	return err
}

func (v *victim) list() error {
	_, err := v.C.List()
	if err == nil {
		_, err = v.C.Facts()
	}
	return err
}

// TestPanics: a panic at any step of a job or request ends that one alone. The supervisor and the jobs of others go on, the log has the
// stack, each decision in the audit log has an end, and nothing is left.
func TestPanics(t *testing.T) {
	sandboxtest.RequireJails(t)
	sandboxtest.Leaks(t)
	injected(t)
	d := sandboxtest.Daemon(t, sandboxtest.DaemonOptions{
		Config: "network: {allow: [{host: web.example.org}]}\n", Everyone: true,
	})
	pid := d.PID()
	others := &victim{&fronttest.Front{T: t, Repo: sandboxtest.NewRepo(t)}, d.Socket}
	others.connect()
	var live []*fronttest.Live
	waits := others.Spec("sh", "-c", "echo ready; cat")
	waits.Network = job.NoNetwork // a process of corral-egress has no descriptors for as many doors
	for range bystanders {
		live = append(live, others.Launch(waits))
	}
	for _, s := range steps {
		t.Run(s.at, func(t *testing.T) {
			v := &victim{&fronttest.Front{T: t, Repo: sandboxtest.NewRepo(t)}, d.Socket}
			v.connect()
			v.panics(s.at, s.during, s.then)
			v.connect()
			if err := errors.Join(v.job(), v.list()); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
	facts, err := others.C.Facts()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range facts {
		if f.Name == "internal errors" && f.Detail != strconv.Itoa(len(steps)) {
			t.Errorf("%s internal errors were counted, want %d", f.Detail, len(steps))
		}
	}
	for n, l := range live {
		_, _ = l.In.WriteString("still here\n")
		if end, err := l.End(); err != nil || end.Status != job.Success || end.Out != "ready\nstill here\n" {
			t.Errorf("bystander %d: %+v, %v", n, end, err)
		}
	}
	if d.PID() != pid {
		t.Error("the supervisor was started again")
	}
	for _, s := range steps {
		if !strings.Contains(d.Log(), "injected at "+filepath.Join(armed, s.at)+`"`) {
			t.Errorf("the log lacks the panic at %s", s.at)
		}
	}
	d.Stop(t)
	finished(t, d.State)
}

// panics does something while a function panics.
func (v *victim) panics(at string, during func(v *victim) error, then string) {
	v.T.Helper()
	trap := filepath.Join(armed, at)
	if err := os.WriteFile(trap, nil, 0o600); err != nil {
		v.T.Fatal(err)
	}
	err := during(v)
	isInternal := err != nil && strings.Contains(err.Error(), internally)
	ok := map[string]bool{
		internal: isInternal, hangUp: errors.Is(err, job.ErrUnavailable), beside: err == nil,
		eitherWay: err == nil || isInternal || strings.Contains(err.Error(), "the jail ended"),
	}
	if !ok[then] {
		v.T.Errorf("%v, want %s", err, then)
	}
	sandboxtest.Eventually(v.T, sandboxtest.Slow(20*time.Second), "the panic at "+at, func() bool {
		_, err := os.Lstat(trap)
		return errors.Is(err, os.ErrNotExist)
	})
}

// finished checks that each decided job in the audit log has an end.
func finished(t *testing.T, state string) {
	t.Helper()
	r, err := audit.OpenReader(filepath.Join(state, "audit"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	open, ended := map[string]bool{}, 0
	for l, err := range r.Lines(0) {
		if err != nil {
			t.Fatal(err)
		}
		rec, err := l.Record()
		if err != nil {
			t.Fatal(err)
		}
		switch rec.Event {
		case audit.Decided:
			open[rec.Job] = true
		case audit.Finished:
			delete(open, rec.Job)
			ended++
		}
	}
	if len(open) > 0 || ended < bystanders {
		t.Errorf("%d jobs have ended, and these have not: %v", ended, open)
	}
}
