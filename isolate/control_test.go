package isolate

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	frontend "corral/isolate/client"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// waiting starts a job that prints each signal it gets and ends with "bye".
func (f *front) waiting() *live {
	f.t.Helper()
	l, err := f.start(f.spec("perl", "-e", `$| = 1;
		my $parent = $$; my $child = fork; my $who = $child ? "first" : "second";
		for my $s (qw(USR1 USR2 TERM)) { $SIG{$s} = sub { syswrite(STDOUT, "$who $s\n"); $s eq "TERM" && $child && exit 5 } }
		syswrite(STDOUT, "$who up\n"); select(undef, undef, undef, 0.05) while 1`)) // a signal just before a longer sleep would be handled only at its end
	if err != nil {
		f.t.Fatal(err)
	}
	l.until("first up")
	l.until("second up")
	return l
}

func TestSignal(t *testing.T) {
	f := newFront(t)
	l := f.waiting()
	send := func(number unix.Signal, everyone bool) {
		t.Helper()
		if err := l.Signal(int(number), everyone); err != nil {
			t.Fatal(err)
		}
	}
	send(unix.SIGUSR1, false)
	l.until("first USR1")
	send(unix.SIGUSR2, true)
	l.until("first USR2")
	l.until("second USR2")
	send(unix.SIGTERM, false)
	d, err := l.end()
	if err != nil || d.ExitCode != 5 || strings.Contains(d.out, "second USR1") || strings.Contains(d.out, "second TERM") {
		t.Errorf("%+v, %v: %q", d.Result, err, d.out)
	}
}

func TestKill(t *testing.T) {
	f := newFront(t)
	l := f.waiting()
	if err := l.Kill(); err != nil {
		t.Fatal(err)
	}
	if d, err := l.end(); err != nil || d.Status != job.Cancelled || d.Signal != int(unix.SIGKILL) {
		t.Errorf("%+v, %v", d.Result, err)
	}
	// A job that is killed right after its request ends too.
	for range 20 {
		l, err := f.start(f.spec("sleep", "1000"))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Kill(); err != nil {
			t.Fatal(err)
		}
		if d, err := l.end(); err != nil || d.Status != job.Cancelled {
			t.Errorf("at once: %+v, %v", d.Result, err)
		}
	}
}

func TestContext(t *testing.T) {
	f := newFront(t)
	r, w := f.pipe()
	null, stderr := f.pipe()
	defer null.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var said output
	said.read(r)
	go func() {
		<-said.seen
		cancel()
	}()
	result, err := f.c.Run(ctx, f.spec("sh", "-c", "echo up; sleep 1000"), job.Stdio{Stdout: w, Stderr: stderr})
	if err != nil || result.Status != job.Cancelled {
		t.Errorf("%+v, %v", result, err)
	}
}

// TestDisconnect: closing a connection ends its jobs, and no others.
func TestDisconnect(t *testing.T) {
	f := newFront(t)
	kept := f.waiting()
	gone := &front{t, f.s, connect(t, f.s, host.Peer{UID: owner}), f.repo}
	l := gone.waiting()
	if err := gone.c.Close(); err != nil {
		t.Fatal(err)
	}
	if d, err := l.end(); !errors.Is(err, job.ErrUnavailable) || d.Status != job.Lost {
		t.Errorf("%+v, %v", d.Result, err)
	}
	eventually(t, func() string {
		if list := f.list(f.c); len(list) != 1 {
			return strings.Join(list, ", ")
		}
		return ""
	})
	if err := kept.Signal(int(unix.SIGTERM), false); err != nil {
		t.Fatal(err)
	}
	if d, err := kept.end(); err != nil || d.ExitCode != 5 {
		t.Errorf("%+v, %v", d.Result, err)
	}
}

// list returns the repositories of the jobs that a client sees.
func (f *front) list(c *frontend.Client) []string {
	f.t.Helper()
	entries, err := c.List()
	if err != nil {
		f.t.Fatal(err)
	}
	var repos []string
	for _, e := range entries {
		if e.Job == "" || e.Started < time.Now().Add(-time.Hour).UnixNano() {
			f.t.Errorf("%+v", e)
		}
		repos = append(repos, e.Repo)
	}
	return repos
}

// TestList: users see their own jobs, root sees all.
func TestList(t *testing.T) {
	f := newFront(t)
	const stranger = 1002
	other := &front{t, f.s, connect(t, f.s, host.Peer{UID: stranger}), newRepo(t)}
	if err := os.Chown(other.repo, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	jobs := []*live{f.waiting(), other.waiting()}
	root := connect(t, f.s, host.Peer{UID: 0})
	for _, tt := range []struct {
		who  string
		c    *frontend.Client
		want string
	}{{"owner", f.c, f.repo}, {"stranger", other.c, other.repo}, {"root", root, f.repo + " " + other.repo}} {
		if got := strings.Join(f.list(tt.c), " "); got != tt.want {
			t.Errorf("%s sees %s, want %s", tt.who, got, tt.want)
		}
	}
	for _, l := range jobs {
		if err := l.Kill(); err != nil {
			t.Error(err)
		}
		if _, err := l.end(); err != nil {
			t.Error(err)
		}
	}
	if got := f.list(root); len(got) != 0 {
		t.Errorf("afterwards %q", got)
	}
}

// TestForeignTag: tags are local to a connection, so a connection can signal only its own jobs.
func TestForeignTag(t *testing.T) {
	f := newFront(t)
	l := f.waiting()
	other := &front{t, f.s, connect(t, f.s, host.Peer{UID: owner}), f.repo}
	o := other.waiting() // with the same tag
	if err := o.Signal(int(unix.SIGTERM), true); err != nil {
		t.Fatal(err)
	}
	if d, err := o.end(); err != nil || d.ExitCode != 5 {
		t.Errorf("%+v, %v", d.Result, err)
	}
	if err := l.Kill(); err != nil {
		t.Fatal(err)
	}
	if d, err := l.end(); err != nil || strings.Contains(d.out, "TERM") {
		t.Errorf("%q, %v", d.out, err)
	}
}

func TestFacts(t *testing.T) {
	f := newFront(t)
	facts, err := f.c.Facts()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, fact := range facts {
		names[fact.Name] = fact.Detail
		if len(fact.Name) >= wire.MaxName {
			t.Errorf("%q is as long as a name can be: it may have been cut", fact.Name)
		}
	}
	// 2,048 connections, and the configured maximums.
	c := f.s.config
	if want := 2048*4 + c.MaxJails*96 + (c.MaxJobs+c.MaxSlots)*16 + int(c.Defaults.PIDs*c.Defaults.OpenFiles); names["open files"] != strconv.Itoa(want) {
		t.Errorf("%s open files, want %d", names["open files"], want)
	}
	if names["cgroup layout"] == "" || names["profiles"] != "default strict" {
		t.Errorf("%q", names)
	}
	if w, err := f.c.Hello(); err != nil || w.Instance != f.s.InstanceName() || w.FrontUID != 0 {
		t.Errorf("%+v, %v", w, err)
	}
}

// TestTerminal: a job with a terminal has its own as controlling terminal.
func TestTerminal(t *testing.T) {
	f := newFront(t)
	spec := f.spec("sh", "-c", "tty; stty size; test -t 0 -a -t 1 -a -t 2 && echo all; read x </dev/tty && echo got $x")
	spec.Terminal = job.Size{Rows: 31, Cols: 97}
	var said output
	run, err := f.c.Start(spec, job.Stdio{}, func(master *os.File) {
		if _, err := master.WriteString("word\n"); err != nil {
			t.Error(err)
		}
		said.read(master)
	})
	if err != nil {
		t.Fatal(err)
	}
	result, err := run.Wait()
	if err != nil || result.Status != job.Success {
		t.Fatalf("%+v, %v", result, err)
	}
	<-said.done
	for _, want := range []string{"/dev/pts/0\r\n", "31 97\r\n", "all\r\n", "got word\r\n"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%q lacks %q", said.String(), want)
		}
	}
}
