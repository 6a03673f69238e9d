package isolate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/fronttest"
	"corral/internal/test/sandboxtest"
	"corral/isolate/client"
	"corral/isolate/host"
	"corral/isolate/inside"
	"corral/job"
)

// tidies is a program whose shell ends at once when it is told to end, while a child of it tidies up when the shell is gone. With the
// argument "stopped", the child is stopped meanwhile.
const tidies = `
	my $shell = $$;
	if (fork) { $| = 1; print "first up\n"; sleep 1000 while 1 }
	for my $s (qw(TERM INT)) {
		$SIG{$s} = sub { select(undef, undef, undef, 0.01) while getppid == $shell; open my $f, ">", "tidied"; print $f $s; exit };
	}
	syswrite(STDOUT, "second up\n");
	kill STOP => $$ if @ARGV;
	select(undef, undef, undef, 0.05) while 1`

// TestTimeToEnd: however a job is ended, all its processes get SIGTERM and have time, also when the first one has ended.
func TestTimeToEnd(t *testing.T) {
	f := sharedFront(t)
	for _, tt := range []struct {
		name    string
		spec    func(*job.Spec)
		end     func(l *fronttest.Live) error
		status  job.Status
		signal  unix.Signal
		stopped bool
	}{
		{"request", nil, func(l *fronttest.Live) error { return l.Kill() }, job.Cancelled, unix.SIGTERM, false},
		{"request, stopped", nil, func(l *fronttest.Live) error { return l.Kill() }, job.Cancelled, unix.SIGTERM, true},
		{"signal", nil, func(l *fronttest.Live) error { return l.Run.End(int(unix.SIGINT)) }, job.Failure, unix.SIGINT, false},
		{"deadline", func(s *job.Spec) { s.Limits.Wall = 3 * time.Second }, func(*fronttest.Live) error { return nil }, job.Timeout, unix.SIGTERM, false},
		{"another client", nil, func(*fronttest.Live) error {
			list, err := f.C.List()
			if err != nil || len(list) != 1 {
				t.Fatalf("%+v, %v", list, err)
			}
			return connect(t, f.s, host.Peer{UID: owner}).Kill(list[0].Job)
		}, job.Cancelled, unix.SIGTERM, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tidied := filepath.Join(f.Repo, "tidied")
			_ = os.Remove(tidied)
			spec := f.Spec("perl", "-e", tidies)
			if tt.stopped {
				spec.Args = append(spec.Args, "stopped")
			}
			spec.Limits.KillAfter = time.Minute
			if tt.spec != nil {
				tt.spec(&spec)
			}
			l, err := f.Start(spec)
			if err != nil {
				t.Fatal(err)
			}
			l.Until("first up")
			l.Until("second up")
			if err := tt.end(l); err != nil {
				t.Fatal(err)
			}
			d, err := l.End()
			if err != nil || d.Status != tt.status || d.Signal != int(tt.signal) || d.Left || d.Stopped != (tt.name == "another client") {
				t.Errorf("%+v, %v", d.Result, err)
			}
			if text, err := os.ReadFile(tidied); err != nil || len(text) == 0 {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

// TestTimeFromTheStart: a job that is asked to end as soon as it has written something has its time, although the supervisor may not yet
// have noted that it started.
func TestTimeFromTheStart(t *testing.T) {
	f := sharedFront(t)
	var clients sync.WaitGroup
	for range 6 {
		own := frontOf(t, f.s, connect(t, f.s, host.Peer{UID: owner}), f.Repo)
		spec := own.Spec("sh", "-c", `trap 'echo tidied; exit 3' TERM; echo ready; while :; do read line; done`)
		spec.Limits.KillAfter = time.Minute
		clients.Go(func() {
			for range sandboxtest.Scale(100) {
				l, err := own.Start(spec)
				if err != nil {
					t.Error(err)
					return
				}
				<-l.Out.Seen // its first line
				if err := l.Kill(); err != nil {
					t.Error(err)
				}
				if d, err := l.End(); err != nil || d.Out != "ready\ntidied\n" || d.Status != job.Cancelled {
					t.Errorf("%+v %q, %v", d.Result, d.Out, err)
				}
			}
		})
	}
	clients.Wait()
}

// TestClientGone: the job of a client that is gone has its time, too.
func TestClientGone(t *testing.T) {
	f := sharedFront(t)
	tidied := filepath.Join(f.Repo, "tidied")
	gone := frontOf(t, f.s, connect(t, f.s, host.Peer{UID: owner}), f.Repo)
	spec := gone.Spec("perl", "-e", tidies)
	spec.Limits.KillAfter = time.Minute
	l, err := gone.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	l.Until("second up")
	if err := l.Kill(); err != nil { // leaving after that is not a second request
		t.Fatal(err)
	}
	if err := gone.C.Close(); err != nil {
		t.Fatal(err)
	}
	if d, err := l.End(); !errors.Is(err, job.ErrUnavailable) || d.Status != job.Lost {
		t.Errorf("%+v, %v", d.Result, err)
	}
	eventually(t, func() string {
		if text, err := os.ReadFile(tidied); err != nil || len(text) == 0 {
			return "not tidied"
		}
		return strings.Join(f.list(f.C), ", ")
	})
}

// stays is a program that ignores all signals but SIGKILL, and so do descendants of it in sessions of their own.
const stays = `
	use POSIX;
	$SIG{$_} = "IGNORE" for qw(TERM INT HUP QUIT);
	$SIG{USR1} = sub { my $n = 1 << 30; my $x = "x" x $n };
	for (1..3) { if (!fork) { setsid; exit if fork; sleep 1000 while 1 } }
	syswrite(STDOUT, "ready\n"); select(undef, undef, undef, 0.05) while 1`

// TestTimeIsOver: a job that does not end is killed when its time is over: never later, and at once if it is asked to end again, or
// reaches a limit meanwhile.
func TestTimeIsOver(t *testing.T) {
	f := sharedFront(t)
	kill := func(l *fronttest.Live) error { return l.Kill() }
	for _, tt := range []struct {
		name            string
		wall, killAfter time.Duration
		end, then       func(l *fronttest.Live) error
		status          job.Status
	}{
		{"deadline", 5 * time.Second, 100 * time.Millisecond, nil, nil, job.Timeout},
		{"request", 0, 100 * time.Millisecond, kill, nil, job.Cancelled},
		{"signal", 0, 100 * time.Millisecond, func(l *fronttest.Live) error { return l.Run.End(int(unix.SIGINT)) }, nil, job.Cancelled},
		{"second request", 0, 10 * time.Minute, kill, kill, job.Cancelled},
		{"request after a signal", 0, 10 * time.Minute, func(l *fronttest.Live) error { return l.Run.End(int(unix.SIGINT)) }, kill, job.Cancelled},
		{"limit", 0, 10 * time.Minute, kill, func(l *fronttest.Live) error { return l.Signal(int(unix.SIGUSR1), false) }, job.Cancelled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := f.Spec("perl", "-e", stays)
			spec.Limits.Wall, spec.Limits.KillAfter, spec.Limits.Memory = tt.wall, tt.killAfter, 512<<20
			l, err := f.Start(spec)
			if err != nil {
				t.Fatal(err)
			}
			for _, do := range []func(*fronttest.Live) error{tt.end, tt.then} {
				if do == nil {
					continue
				}
				l.Until("ready")
				if err := do(l); err != nil {
					t.Fatal(err)
				}
			}
			d, err := l.End()
			if err != nil || d.Status != tt.status || d.Signal != int(unix.SIGKILL) {
				t.Errorf("%+v, %v %s", d.Result, err, d.Err)
			}
			if left := members(t, f.s); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
		})
	}
}

// TestClientGoneEnds: a job that does not end keeps its processes but for a moment when its client is gone, whatever time it was given
// and also if that has begun.
func TestClientGoneEnds(t *testing.T) {
	f := sharedFront(t)
	for _, before := range []struct {
		name string
		do   func(l *fronttest.Live) error
	}{
		{"nothing", func(*fronttest.Live) error { return nil }},
		{"request", (*fronttest.Live).Kill},
	} {
		t.Run(before.name, func(t *testing.T) {
			gone := frontOf(t, f.s, connect(t, f.s, host.Peer{UID: owner}), f.Repo)
			spec := gone.Spec("perl", "-e", stays)
			spec.Limits.KillAfter = 10 * time.Minute
			l, err := gone.Start(spec)
			if err != nil {
				t.Fatal(err)
			}
			l.Until("ready")
			if err := errors.Join(before.do(l), gone.C.Close()); err != nil {
				t.Fatal(err)
			}
			if _, err := l.End(); !errors.Is(err, job.ErrUnavailable) {
				t.Error(err)
			}
			eventually(t, func() string { return strings.Join(f.list(f.C), ", ") })
			if left := members(t, f.s); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
		})
	}
}

// outlives is a program whose first process ends when it is told to, and which leaves a child that ignores that, writes 8 MiB if its
// argument is "write", and after half a minute makes a file.
const outlives = `
	my $parent = $$;
	if (fork) { syswrite(STDOUT, "first up\n"); sleep 1000 while 1 }
	$SIG{TERM} = "IGNORE";
	syswrite(STDOUT, "second up\n");
	select(undef, undef, undef, 0.01) while getppid == $parent;
	if ($ARGV[0] eq "write") { open my $f, ">", "much"; print $f "x" x (8 << 20); close $f }
	syswrite(STDOUT, "alone\n");
	sleep 30;
	open my $f, ">", "late"; close $f;
	sleep 1000 while 1`

// TestToldEnds: what a job leaves whose first process has ended on a signal has its time only as long as it reaches no limit, nobody
// asks again, and its client stays.
func TestToldEnds(t *testing.T) {
	f := sharedFront(t)
	for _, tt := range []struct {
		name string
		then func(l *fronttest.Live, c *client.Client) error
	}{
		{"write", func(*fronttest.Live, *client.Client) error { return nil }},
		{"requests", func(l *fronttest.Live, _ *client.Client) error { return errors.Join(l.Kill(), l.Kill()) }},
		{"gone", func(_ *fronttest.Live, c *client.Client) error { return c.Close() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			own := frontOf(t, f.s, connect(t, f.s, host.Peer{UID: owner}), f.Repo)
			spec := own.Spec("perl", "-e", outlives, tt.name)
			spec.Limits.KillAfter, spec.Limits.Disk = time.Minute, 1<<20
			l, err := own.Start(spec)
			if err != nil {
				t.Fatal(err)
			}
			l.Until("second up")
			if err := l.Signal(int(unix.SIGTERM), true); err != nil {
				t.Fatal(err)
			}
			if tt.name != "write" {
				l.Until("alone")
			}
			if err := tt.then(l, own.C); err != nil {
				t.Fatal(err)
			}
			_, _ = l.End()
			eventually(t, func() string { return strings.Join(f.list(f.C), ", ") })
			if _, err := os.Stat(filepath.Join(f.Repo, "late")); err == nil {
				t.Error("the child had all its time")
			}
			os.Remove(filepath.Join(f.Repo, "much"))
		})
	}
}

// TestStubKeepsTime: the stub kills a job whose time is over if the supervisor does not.
func TestStubKeepsTime(t *testing.T) {
	f := newFront(t, skip(t, []string{inside.Deadline}))
	spec := f.Spec("perl", "-e", stays)
	spec.Limits.Wall, spec.Limits.KillAfter = 5*time.Second, 100*time.Millisecond
	if d := f.Run(spec); d.Status != job.Timeout || d.Signal != int(unix.SIGKILL) {
		t.Errorf("%+v %s", d.Result, d.Err)
	}
}

// TestLeft: a result says that processes were left running, but not those that were ending by themselves, or that were told to.
func TestLeft(t *testing.T) {
	f := sharedFront(t)
	for script, want := range map[string]bool{
		"true": false, "sleep 1000 & echo": true, "(setsid sleep 1000 &)": true, "sleep 1000 >&2 & (exit 3) | cat": true,
		"cat /dev/zero | head -c 1": false,
	} {
		if d := f.Run(f.Spec("sh", "-c", script)); d.Left != want {
			t.Errorf("%s: %+v", script, d.Result)
		}
	}
}

// TestGitLocks: a job that was ended names the locks that its git left, and no other ones.
func TestGitLocks(t *testing.T) {
	f := sharedFront(t)
	f.Sh("rm -rf .git; mkdir .git; touch -d 2000-01-01 .git/HEAD.lock")
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Join(f.Repo, ".git")) })
	for _, ended := range []bool{true, false} {
		l := f.Launch(f.Spec("sh", "-c", "rm -f .git/index.lock; : >.git/index.lock; echo ready; read x"))
		if ended {
			if err := l.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		d, err := l.End()
		if err != nil || (len(d.GitLocks) == 1 && d.GitLocks[0] == ".git/index.lock") != ended {
			t.Errorf("%t: %+v, %v", ended, d.Result, err)
		}
	}
}
