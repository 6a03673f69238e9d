package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// A manager is the socket on which a service reports its state (NOTIFY_SOCKET).
type manager struct {
	*net.UnixConn
	path string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &manager{c, path}
}

// next returns the next state that is reported within timeout, "" without one.
func (m *manager) next(t *testing.T, timeout time.Duration) string {
	t.Helper()
	b := make([]byte, 4096)
	if err := m.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	n, err := m.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// TestNotify: a service manager is told when the supervisor serves, as long as it answers, and when it stops.
func TestNotify(t *testing.T) {
	sandboxtest.RequireJails(t)
	m := newManager(t)
	s := sandboxtest.Daemon(t, sandboxtest.DaemonOptions{
		// The watchdog's process id is the shell's, which becomes corrald.
		Wrapper: []string{"/bin/sh", "-c", `NOTIFY_SOCKET=` + m.path + ` WATCHDOG_USEC=400000 WATCHDOG_PID=$$ exec "$@"`, "sh"},
	})
	wait := sandboxtest.Slow(time.Minute)
	if got := m.next(t, wait); got != "READY=1" {
		t.Fatalf("the first state is %q, want READY=1", got)
	}
	for range 3 {
		if got := m.next(t, wait); got != "WATCHDOG=1" {
			t.Fatalf("got %q, want WATCHDOG=1", got)
		}
	}
	s.Stop(t)
	for {
		got := m.next(t, wait)
		if got == "STOPPING=1" {
			break
		}
		if got != "WATCHDOG=1" {
			t.Fatalf("got %q, want STOPPING=1", got)
		}
	}
	if got := m.next(t, time.Millisecond); got != "" {
		t.Errorf("%q after STOPPING=1", got)
	}
}

// TestWatchdogNotAnswered: a supervisor that does not answer is not reported as alive, and is again once it answers.
func TestWatchdogNotAnswered(t *testing.T) {
	m := newManager(t)
	t.Setenv("NOTIFY_SOCKET", m.path)
	var said strings.Builder
	n := &notifier{log: slog.New(slog.NewTextHandler(&said, nil))}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	checks := 0
	go func() {
		defer close(ended)
		n.watch(ctx, time.Millisecond, func(ctx context.Context) error {
			if checks++; checks <= 5 {
				<-ctx.Done() // as a supervisor whose lock is held for ever
				return ctx.Err()
			}
			return nil
		})
	}()
	got := m.next(t, sandboxtest.Slow(time.Minute))
	stop()
	<-ended
	if got != "WATCHDOG=1" || checks < 6 {
		t.Errorf("got %q after %d checks", got, checks)
	}
	if n := strings.Count(said.String(), "the supervisor does not answer"); n != 5 {
		t.Errorf("reported %d times, want 5:\n%s", n, said.String())
	}
}

// activate is a service manager in Python: it makes a socket of a type, and passes it to a program as descriptor 3.
const activate = `
import os, socket, sys
s = socket.socket(socket.AF_UNIX, getattr(socket, sys.argv[1]))
s.bind(sys.argv[2])
s.listen()
if s.fileno() == 3: os.set_inheritable(3, True)
else: os.dup2(s.fileno(), 3)
os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[3], sys.argv[3:])
`

// TestSocketActivation: the supervisor serves the socket that a service manager passes, and leaves it in place.
func TestSocketActivation(t *testing.T) {
	sandboxtest.RequireJails(t)
	path := filepath.Join(sandboxtest.OpenDir(t), "passed")
	s := sandboxtest.Daemon(t, sandboxtest.DaemonOptions{Wrapper: []string{"/usr/bin/python3", "-c", activate, "SOCK_SEQPACKET", path}})
	if !strings.Contains(s.Log(), path) {
		t.Errorf("the log does not name the passed socket %s:\n%s", path, s.Log())
	}
	d := &server{&sandboxtest.Supervisor{Socket: path}, sandboxtest.Bin(t, "corral")}
	dir := makeDirectory(t, filepath.Join(s.Dir, "repo"), 0, 0o755)
	if code, out, errs := d.runs(0, "run", "--repo", dir, "--", "sh", "-c", `echo "ran ${LISTEN_FDS-}"`); code != 0 || out != "ran \n" {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	s.Stop(t)
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the service manager's socket: %v", err)
	}
}

// TestSocketActivationRefused: a socket of another type is refused, with what to change.
func TestSocketActivationRefused(t *testing.T) {
	sandboxtest.RequireJails(t)
	path := filepath.Join(sandboxtest.OpenDir(t), "passed")
	code, said := sandboxtest.DaemonFailsIn(t, sandboxtest.DaemonOptions{Wrapper: []string{"/usr/bin/python3", "-c", activate, "SOCK_STREAM", path}})
	if code != failure || !strings.Contains(said, "SOCK_SEQPACKET\nhint: use ListenSequentialPacket=") {
		t.Errorf("exit code %d: %s", code, said)
	}
}

// TestSocketOf: a socket that was meant for another process is not taken, more than one is refused, and no child of this process
// finds the variables.
func TestSocketOf(t *testing.T) {
	for name, tt := range map[string]struct{ pid, count, want string }{
		"another process": {"1", "1", ""},
		"none":            {"", "", ""},
		"two":             {strconv.Itoa(os.Getpid()), "2", `systemd passed "2" sockets`},
		"no number":       {strconv.Itoa(os.Getpid()), "", `systemd passed "" sockets`},
	} {
		t.Run(name, func(t *testing.T) {
			variables := map[string]string{"LISTEN_PID": tt.pid, "LISTEN_FDS": tt.count, "LISTEN_FDNAMES": "corrald.socket"}
			for name, value := range variables {
				t.Setenv(name, value)
			}
			path := filepath.Join(t.TempDir(), "socket")
			l, err := socketOf(path, noMembers)
			if tt.want != "" {
				if l != nil || err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "hint: ") {
					t.Errorf("%v, %v, want %q", l, err, tt.want)
				}
			} else if err != nil {
				t.Error(err)
			} else if l.Close(); l.Addr().String() != path {
				t.Errorf("it listens at %s", l.Addr())
			}
			for name := range variables {
				if value, there := os.LookupEnv(name); there {
					t.Errorf("%s=%s is left", name, value)
				}
			}
		})
	}
}

// TestNotifyStates: a reload is reported with its time and its end, and a stop ends the answers to the watchdog.
func TestNotifyStates(t *testing.T) {
	m := newManager(t)
	t.Setenv("NOTIFY_SOCKET", m.path)
	var log sandboxtest.Output
	stopped := false
	n := &notifier{log: slog.New(slog.NewTextHandler(&log, nil)), stop: func() { stopped = true }}
	done := n.reloading()
	if got := m.next(t, sandboxtest.Slow(time.Minute)); !strings.HasPrefix(got, "RELOADING=1\nMONOTONIC_USEC=") || strings.HasSuffix(got, "=0") {
		t.Errorf("%q", got)
	}
	done()
	if got := m.next(t, sandboxtest.Slow(time.Minute)); got != "READY=1" {
		t.Errorf("%q", got)
	}
	n.stopping()
	if got := m.next(t, sandboxtest.Slow(time.Minute)); got != "STOPPING=1" || !stopped {
		t.Errorf("%q, stopped %v", got, stopped)
	}
	if log.String() != "" {
		t.Errorf("logged: %s", log.String())
	}
	m.Close()
	n.stopping()
	if !strings.Contains(log.String(), "systemd was not notified") {
		t.Errorf("logged: %q", log.String())
	}
}

// TestWatchdogUnknown: a supervisor whose watchdog has no interval serves, and logs that the watchdog is not answered.
func TestWatchdogUnknown(t *testing.T) {
	m := newManager(t)
	t.Setenv("NOTIFY_SOCKET", m.path)
	t.Setenv("WATCHDOG_USEC", "soon")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	var log sandboxtest.Output
	n := &notifier{log: slog.New(slog.NewTextHandler(&log, nil))}
	n.ready(nil)
	defer n.stop()
	if got := m.next(t, sandboxtest.Slow(time.Minute)); got != "READY=1" || !strings.Contains(log.String(), "the watchdog is not answered") {
		t.Errorf("reported %q, logged %q", got, log.String())
	}
}
