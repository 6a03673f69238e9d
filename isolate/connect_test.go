package isolate

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"corral/internal/test/fronttest"
	"corral/internal/test/sandboxtest"
	"corral/isolate/host"
	"corral/isolate/wire"
	"corral/job"
)

// serving6 is serving at ::1 alone.
var serving6 = strings.NewReplacer("use Socket;", "use Socket qw(:DEFAULT :addrinfo inet_pton pack_sockaddr_in6 AF_INET6);", "PF_INET,", "AF_INET6,",
	"sockaddr_in(7007, INADDR_LOOPBACK)", "pack_sockaddr_in6(7007, inet_pton(AF_INET6, '::1'))").Replace(serving)

// hear connects to port 7007 of a session and returns what the server says.
func (f *front) hear(ss job.Session) string {
	f.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), sandboxtest.Slow(20*time.Second))
	defer cancel()
	c, err := f.C.Connect(ctx, ss.ID, 7007)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	b, err := io.ReadAll(c)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// TestConnect: the owner of a session reaches the servers that its jobs run, also those that listen at ::1 alone.
func TestConnect(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	f := newFront(t)
	for name, spec := range map[string]job.SessionSpec{
		"direct": {Share: true}, "overlay": {Workspace: job.Overlay, Share: true}, "root": {Root: true},
	} {
		t.Run(name, func(t *testing.T) {
			ss := f.Session(spec)
			refusedAt(t, "no job yet", fronttest.Second(f.C.Connect(t.Context(), ss.ID, 7007)), "connect", unix.ECONNREFUSED)
			for _, program := range []string{serving, serving6} {
				server := f.Launch(f.inSession(ss, program))
				for range 3 {
					if said := f.hear(ss); said != "canary" {
						t.Errorf("%q", said)
					}
				}
				refusedAt(t, "another port", fronttest.Second(f.C.Connect(t.Context(), ss.ID, 7008)), "connect", unix.ECONNREFUSED)
				if _, err := server.End(); err != nil {
					t.Error(err)
				}
			}
			refusedAt(t, "the server has ended", fronttest.Second(f.C.Connect(t.Context(), ss.ID, 7007)), "connect", unix.ECONNREFUSED)
		})
	}
}

// TestConnectRefused: nobody connects to a session of another user, to one that has ended, or to one whose jobs share no network.
func TestConnectRefused(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	f := newFront(t)
	ss := f.Session(job.SessionSpec{Share: true, Workspace: job.Overlay})
	f.Must(ss, "echo >made")
	server := f.Launch(f.inSession(ss, serving))
	other := connect(t, f.s, host.Peer{UID: owner + 1})
	embedded := connect(t, f.s, host.Peer{UID: owner, Embedded: true})
	try := func(c interface {
		Connect(context.Context, string, uint16) (*os.File, error)
	}, id string, port uint16,
	) error {
		file, err := c.Connect(t.Context(), id, port)
		if err == nil {
			file.Close()
		}
		return err
	}
	refusedAt(t, "another user", try(other, ss.ID, 7007), "session", 0)
	refusedAt(t, "a front-end of root", try(embedded, ss.ID, 7007), "session", 0)
	refusedAt(t, "no such session", try(f.C, strings.Repeat("0", 32), 7007), "session", 0)
	refusedAt(t, "a long id", try(f.C, ss.ID+"0", 7007), "session", 0)
	refusedAt(t, "a path", try(f.C, "../x", 7007), "session", 0)
	refusedAt(t, "port 0", try(f.C, ss.ID, 0), "connect", 0)
	refusedAt(t, "shares nothing", try(f.C, f.Session(job.SessionSpec{Workspace: job.Overlay}).ID, 7007), "connect", 0)
	if err := try(connect(t, f.s, host.Peer{}), ss.ID, 7007); err != nil {
		t.Errorf("root: %v", err)
	}
	if _, err := server.End(); err != nil {
		t.Error(err)
	}
	f.CloseSession(ss, true)
	refusedAt(t, "a kept layer", try(f.C, ss.ID, 7007), "session", 0)
	for _, open := range sessionsOf(t, f) {
		if open.ID == ss.ID && !open.Kept {
			t.Error("a connection resumed the kept layer")
		}
	}
}

func sessionsOf(t *testing.T, f *front) []job.Session {
	t.Helper()
	list, err := f.C.ListSessions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestConnectNotAccepted: a server that accepts nothing keeps those waiting who connect to it, and nobody else: not the jail's init, not
// the supervisor.
func TestConnectNotAccepted(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	f := newFront(t)
	ss := f.Session(job.SessionSpec{Share: true})
	server := f.Launch(f.inSession(ss, `use Socket; $| = 1; socket(my $s, PF_INET, SOCK_STREAM, 0);
		bind($s, sockaddr_in(7007, INADDR_LOOPBACK)) && listen($s, 0) or die; print "ready\n"; <STDIN>`))
	first, err := f.C.Connect(t.Context(), ss.ID, 7007) // however long that takes: the kernel keeps some that are not accepted
	if err != nil {
		t.Fatal(err)
	}
	held := []*os.File{first}
	defer func() { wire.CloseAll(held) }()
	waiting := 0
	for waiting < 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		c, err := f.C.Connect(ctx, ss.ID, 7007)
		cancel()
		switch {
		case err == nil:
			held = append(held, c)
		case errors.Is(err, context.DeadlineExceeded):
			waiting++
		default:
			t.Fatal(err)
		}
	}
	if len(held) > 8 {
		t.Errorf("%d connections to a server that accepts none", len(held))
	}
	if said := f.Must(ss, "echo runs"); said != "runs\n" {
		t.Errorf("%q", said)
	}
	if _, err := server.End(); err != nil {
		t.Error(err)
	}
}

// TestPorts: the owner of a session is told at which ports its processes listen, and nobody else is.
func TestPorts(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	f := newFront(t)
	ss := f.Session(job.SessionSpec{Share: true})
	says := func(want ...uint16) {
		t.Helper()
		got, more, err := f.C.Ports(t.Context(), ss.ID)
		if err != nil || more || !slices.Equal(got, want) {
			t.Errorf("%v, more %v, %v, want %v", got, more, err, want)
		}
	}
	says()
	servers := []*live{f.Launch(f.inSession(ss, serving)), f.Launch(f.inSession(ss, strings.ReplaceAll(serving6, "7007", "7006")))}
	servers = append(servers, f.Launch(f.inSession(ss, strings.NewReplacer("7007", "7005", "INADDR_LOOPBACK", "INADDR_ANY").Replace(serving))))
	servers = append(servers, f.Launch(f.inSession(ss, strings.NewReplacer("7007", "7004", "INADDR_LOOPBACK", "inet_aton('127.0.0.2')").Replace(serving))))
	says(7005, 7006, 7007)
	many := f.Launch(f.inSession(ss, `use Socket; $| = 1; my @all; for my $port (20_000 .. 20_900) { socket(my $s, PF_INET, SOCK_STREAM, 0);
		bind($s, sockaddr_in($port, INADDR_LOOPBACK)) && listen($s, 1) or die $!; push @all, $s } print "ready\n"; <STDIN>`))
	if got, more, err := f.C.Ports(t.Context(), ss.ID); err != nil || !more || len(got) != 64 || !slices.IsSorted(got) {
		t.Errorf("%v, more %v, %v", got, more, err)
	}
	for name, c := range map[string]interface {
		Ports(context.Context, string) ([]uint16, bool, error)
	}{"another user": connect(t, f.s, host.Peer{UID: owner + 1}), "a front-end of root": connect(t, f.s, host.Peer{UID: owner, Embedded: true})} {
		_, _, err := c.Ports(t.Context(), ss.ID)
		refusedAt(t, name, err, "session", 0)
	}
	for _, server := range append(servers, many) {
		if _, err := server.End(); err != nil {
			t.Error(err)
		}
	}
	_, _, err := f.C.Ports(t.Context(), f.Session(job.SessionSpec{}).ID)
	refusedAt(t, "shares nothing", err, "connect", 0)
}
