package main

import (
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// echoServer answers each connection to a port with what it sends, once it has sent all.
const echoServer = `use Socket; $| = 1; $SIG{CHLD} = "IGNORE"; socket(my $s, PF_INET, SOCK_STREAM, 0); setsockopt($s, SOL_SOCKET, SO_REUSEADDR, 1);
bind($s, sockaddr_in(7007, INADDR_LOOPBACK)) && listen($s, 64) or die "bind: $!"; print "ready\n";
while (accept(my $c, $s)) { next if fork; local $/; my $all = <$c>; print $c $all; exit 0 }`

// forwarding starts corral session forward, and returns it with the address of its one port.
func (d *daemon) forwarding(t *testing.T, id, port string) (*process, string) {
	t.Helper()
	p := start(t, command(t, "session", "forward", id, port, "--supervisor", d.Socket))
	line := regexp.MustCompile(`(?m)^(127\.0\.0\.1:\d+) -> port 7007 of session \S+$`)
	var found []string
	sandboxtest.Eventually(t, time.Minute, "the address", func() bool {
		if p.EndsWithin(0) {
			t.Fatalf("%q", p.Err.String())
		}
		found = line.FindStringSubmatch(p.Out.String())
		return found != nil
	})
	return p, found[1]
}

// say sends a text over a connection, says that there is no more, and returns the answer.
func say(address, text string) (string, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

// TestForward: programs of the host reach a server in a session, at 127.0.0.1 and ::1, with as many connections as they like, until
// the session ends.
func TestForward(t *testing.T) {
	sandboxtest.RequireJails(t)
	sandboxtest.Require(t, sandboxtest.Program("perl"))
	repo, d := repository(t), serve(t)
	id := d.open(t, "--repo", repo, "--name", "web")
	server := start(t, command(t, "session", "exec", id, "--supervisor", d.Socket, "--", "perl", "-e", echoServer))
	server.ready(t)
	if s := d.listed(t)[id]; !slices.Equal(s.Ports, []uint16{7007}) {
		t.Errorf("listens at %v", s.Ports)
	}
	if got := d.session(t, "list"); !regexp.MustCompile(`(?m)^` + id + `  web  .* 1 jobs  7007   `).MatchString(got.stdout) {
		t.Errorf("%s", got.stdout)
	}
	p, address := d.forwarding(t, "web", "7007:0")
	long := strings.Repeat("a line of a page\n", 100_000)
	_, port, _ := net.SplitHostPort(address)
	for _, to := range []string{address, net.JoinHostPort("::1", port)} {
		said := make(chan string)
		for n := range 20 {
			go func() {
				got, err := say(to, fmt.Sprint(n, long))
				if err == nil && got == fmt.Sprint(n, long) {
					got = ""
				}
				said <- fmt.Sprintf("%.100q %v", got, err)
			}()
		}
		for range 20 {
			if got := <-said; got != `"" <nil>` {
				t.Errorf("%s: %s", to, got)
			}
		}
	}
	d.session(t, "close", id).want(t, 0, "")
	if got := p.ends(t); got.code != 0 || !strings.Contains(got.stderr, "the session has ended") {
		t.Errorf("%+v", got)
	}
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("somebody still listens")
	}
}
