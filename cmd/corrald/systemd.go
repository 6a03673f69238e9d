package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"corral/isolate"
	"corral/isolate/client"
	"corral/isolate/host"
	"corral/isolate/wire"
)

// firstPassed is the first descriptor that systemd passes (SD_LISTEN_FDS_START of sd_listen_fds(3)).
const firstPassed = 3

// socketOf returns the socket to serve: the one that systemd passed (sd_listen_fds(3)), else a new one at path for root and the
// group called members. It removes the variables of socket activation from the environment, so that no child mistakes them for
// its own.
//
// The protocol is three variables. A library for it would link crypto/tls into a program that is root.
func socketOf(path, members string) (*net.UnixListener, error) {
	pid, count := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	for _, v := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		if err := os.Unsetenv(v); err != nil {
			return nil, err
		}
	}
	if pid != strconv.Itoa(os.Getpid()) { // set for another process, or not at all
		return listen(path, members)
	}
	if count != "1" {
		return nil, fmt.Errorf("systemd passed %q sockets, and corrald serves one\nhint: leave one ListenSequentialPacket= in corrald.socket", count)
	}
	passed := os.NewFile(firstPassed, "socket of systemd")
	defer passed.Close() // the listener has a duplicate
	l, err := net.FileListener(passed)
	if err != nil {
		return nil, fmt.Errorf("the socket passed by systemd: %w", err)
	}
	u, isUnix := l.(*net.UnixListener)
	if !isUnix || u.Addr().Network() != "unixpacket" {
		l.Close()
		return nil, errors.New("the socket passed by systemd is not a Unix socket of type SOCK_SEQPACKET\nhint: use ListenSequentialPacket= in corrald.socket")
	}
	u.SetUnlinkOnClose(false) // the path is systemd's, which keeps the socket while this process restarts
	return u, nil
}

// A notifier reports the state of the service to systemd, if systemd started it (sd_notify(3)); else it does nothing.
type notifier struct {
	log  *slog.Logger
	stop context.CancelFunc // set by ready
}

// ready reports that s accepts connections, and begins to answer the watchdog (WatchdogSec=) if there is one.
func (n *notifier) ready(s *isolate.Supervisor) {
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	n.send(sd.SdNotifyReady)
	interval, err := sd.SdWatchdogEnabled(false)
	switch {
	case err != nil:
		n.log.Warn("the watchdog is not answered", "error", err)
	case interval > 0:
		go n.watch(ctx, interval/2, func(ctx context.Context) error { return answers(ctx, s) })
	}
}

// reloading reports that the configuration is read again, and returns a function that reports the end of that. systemd 253
// and later require the time; earlier versions ignore it.
func (n *notifier) reloading() (done func()) {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it cannot fail
	n.send(sd.SdNotifyReloading + fmt.Sprintf("\nMONOTONIC_USEC=%d", now.Nano()/1000))
	return func() { n.send(sd.SdNotifyReady) }
}

// stopping reports that the service ends its jobs, and stops answering the watchdog: TimeoutStopSec= bounds the rest.
func (n *notifier) stopping() {
	n.stop()
	n.send(sd.SdNotifyStopping)
}

func (n *notifier) send(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		n.log.Warn("systemd was not notified", "state", state, "error", err)
	}
}

// watch reports to systemd once per interval, as long as check succeeds within it. systemd restarts a service that does not
// report. A timer alone would keep reporting if the goroutines that serve clients were deadlocked.
func (n *notifier) watch(ctx context.Context, interval time.Duration, check func(context.Context) error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		attempt, cancel := context.WithTimeout(ctx, interval)
		err := check(attempt)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			n.log.Error("the supervisor does not answer; systemd will restart it", "error", err)
		default:
			n.send(sd.SdNotifyWatchdog)
		}
	}
}

// answers waits for the supervisor's greeting over a new connection. It does not use the socket that users can reach:
// a user could fill that socket's backlog, and the service would be restarted and all jobs ended.
func answers(ctx context.Context, s *isolate.Supervisor) error {
	conn, file, err := wire.Pair()
	if err != nil {
		return err
	}
	served, err := wire.NewConn(file)
	if err != nil {
		conn.Close()
		return err
	}
	go s.ServeConn(served, host.Peer{})
	c := client.New(conn)
	defer c.Close()
	done := make(chan error, 1) // buffered, because a late answer is not received
	go func() {
		_, err := c.Hello()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no greeting: %w", ctx.Err())
	}
}
