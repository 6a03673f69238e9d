package egress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"corral/egress/control"
	"corral/egress/names"
	"corral/internal/ratelimit"
	"corral/internal/test/nettest"
	"corral/internal/test/sandboxtest"
	"corral/policy/network"
)

const plenty = 4096 // descriptors

// TestAllowed: a job reaches what the rules allow, each name at an address of its own, and the report says so once.
func TestAllowed(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	sandboxtest.Leaks(t)
	w := newWorld(t, plenty)
	w.echo(alpha, 7)
	w.echo(beta, 7)
	d := w.open(tcp("7"), "")
	says(t, d.dial("alpha.example.org"), "hello")
	conn := d.dial("beta.example.org")
	says(t, conn, "hello you")
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	mustEnd(t, conn)
	beta := func() (line map[string]any) {
		for _, l := range w.log.lines(t) {
			if l["host"] == "beta.example.org" {
				line = l
			}
		}
		return line
	}
	// What ends with the door says so, and the other end sees the end of a connection before the log does.
	sandboxtest.Eventually(t, time.Minute, "the connection has ended", func() bool { return beta() != nil })
	if a, b := d.mustFind("alpha.example.org"), d.mustFind("beta.example.org"); a == b || a != firstName || b != firstName.Next() {
		t.Errorf("addresses %s and %s", a, b)
	}
	if s := d.report(); s.Connections != 2 || s.BytesUp != 14 || s.BytesDown != 14 || s.Denied != 0 || s.Denials != nil {
		t.Errorf("%+v", s)
	}
	if s := d.report(); s.Connections != 0 || s.BytesUp != 0 || s.BytesDown != 0 {
		t.Errorf("a second report: %+v", s)
	}
	says(t, d.dial("alpha.example.org"), "again")
	if s := d.summary(control.KindClose); s.Connections != 1 || s.BytesUp != 5 || s.BytesDown != 5 {
		t.Errorf("the last report: %+v", s)
	}
	line := beta()
	for key, want := range map[string]any{
		"name": "job 1", "port": 7.0, "verdict": "allowed", "bytes_up": 9.0, "bytes_down": 9.0,
		"rule": "{host: \"*.example.org\", ports: [7], protocol: tcp}",
	} {
		if line[key] != want {
			t.Errorf("logged %v, want %s = %v", line, key, want)
		}
	}
}

// TestDenied: what the rules do not allow does not exist for the job, and the report says what would allow it.
func TestDenied(t *testing.T) {
	w := newWorld(t, plenty)
	w.echo(alpha, 7)
	w.echo(alpha, 8)
	w.echo(beta, 7)
	d := w.open(`{"allow":[{"host":"*.example.org","ports":[7],"protocol":"tcp"}],"deny":["beta.example.org"],`+everything+`}`, "")
	for _, name := range []string{"example.net", "example.org", "beta.example.org"} {
		if addr, code := d.lookup(name); addr.IsValid() || code != dnsmessage.RCodeNameError {
			t.Errorf("%s: %v, %v, want NXDOMAIN", name, addr, code)
		}
	}
	addr := d.mustFind("alpha.example.org")
	d.refused(addr, 8)
	d.refused(addr.Next(), 7)
	_, _ = d.lookup("example.net")
	s := d.report()
	if s.Connections != 0 || s.Denied != 4 || len(s.Denials) != 3 {
		t.Fatalf("%+v", s)
	}
	if n := s.Denials[0]; n.Name != "example.net" || n.Port != 0 || n.Count != 2 || n.Allow == "" || n.Why == "" {
		t.Errorf("%+v", n)
	}
	if n := s.Denials[2]; n.Name != "beta.example.org" || n.Allow != "" || n.Why == "" {
		t.Errorf("a denied name: %+v", n)
	}
	if s := d.report(); s.Denied != 0 || s.Denials != nil {
		t.Errorf("a second report: %+v", s)
	}
}

// TestAddressesChecked: a name whose address is private is not connected to, and the report says what would allow that.
func TestAddressesChecked(t *testing.T) {
	w := newWorld(t, plenty)
	w.echo(alpha, 7)
	d := w.open(`{"allow":[{"host":"alpha.example.org","ports":[7],"protocol":"tcp"}]}`, "")
	mustEnd(t, d.dial("alpha.example.org"))
	s := d.summary(control.KindReport)
	sandboxtest.Eventually(t, 20*time.Second, "the denial is recorded", func() bool {
		if len(s.Denials) == 0 {
			s = d.report()
		}
		return len(s.Denials) == 1
	})
	if n := s.Denials[0]; n.Port != 7 || n.Allow != "network.private: [192.0.2.0/24]" || !strings.Contains(n.Why, "192.0.2.10") {
		t.Errorf("%+v", n)
	}
}

// TestUpdate: newer rules apply to what is open.
func TestUpdate(t *testing.T) {
	both := tcp("7")
	for name, rules := range map[string]string{
		"nothing":            `{}`,
		"another host":       `{"allow":[{"host":"beta.example.org","ports":[7],"protocol":"tcp"}],` + everything + `}`,
		"another port":       tcp("8"),
		"denied":             `{"allow":[{"host":"*.example.org","ports":[7],"protocol":"tcp"}],"deny":["alpha.example.org"],` + everything + `}`,
		"another protocol":   `{"allow":[{"host":"*.example.org","ports":[7]}],` + everything + `}`,
		"another network":    `{"allow":[{"host":"*.example.org","ports":[7],"protocol":"tcp"}],"private":["198.51.100.0/24"]}`,
		"an unknown key":     `{"allow":[{"host":"*.example.org","ports":[7],"protocol":"tcp"}],` + everything + `,"more":1}`,
		"an invalid rule":    `{"allow":[{"host":"*","ports":[7],"protocol":"tcp"}],` + everything + `}`,
		"no rules":           `null`,
		"a string":           `"alpha.example.org"`,
		"unchanged":          both,
		"with another limit": `{"allow":[{"host":"*.example.org","ports":[7],"protocol":"tcp"}],` + everything + `,"bytes":{"up":2048}}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, plenty)
			w.echo(alpha, 7)
			d := w.open(both, "")
			conn := d.dial("alpha.example.org")
			says(t, conn, "hello")
			addr := d.mustFind("alpha.example.org")
			d.update(rules)
			if name == "unchanged" || name == "with another limit" {
				says(t, conn, "hello")
				return
			}
			mustEnd(t, conn)
			switch name {
			case "another network":
				mustEnd(t, d.dial("alpha.example.org"))
			case "another protocol":
				if other, err := d.space.Dial(netip.AddrPortFrom(addr, 7)); err == nil {
					_, _ = io.WriteString(other, "hello")
					mustEnd(t, other)
				}
			default:
				d.refused(addr, 7)
			}
			d.update(both)
			if again := d.mustFind("alpha.example.org"); again != addr {
				t.Errorf("address %s, before it was %s", again, addr)
			}
			says(t, d.dial("alpha.example.org"), "hello")
		})
	}
}

// TestAsk: a job reaches what it asked for. What newer rules have of that goes on.
func TestAsk(t *testing.T) {
	w := newWorld(t, plenty)
	w.echo(alpha, 7)
	w.echo(beta, 7)
	d := w.open(tcp("7"), "alpha.example.org,beta.example.org:7")
	if _, code := d.lookup("gamma.example.org"); code != dnsmessage.RCodeNameError {
		t.Errorf("a name that was not asked for: %v", code)
	}
	a, b := d.dial("alpha.example.org"), d.dial("beta.example.org")
	says(t, a, "a")
	says(t, b, "b")
	d.update(`{"allow":[{"host":"*.example.org","ports":[7],"protocol":"tcp"}],"deny":["beta.example.org"],` + everything + `}`)
	says(t, a, "a")
	mustEnd(t, b)
	d.update(`{"allow":[{"host":"gamma.example.org","ports":[7],"protocol":"tcp"}],` + everything + `}`)
	mustEnd(t, a)
	if _, code := d.lookup("gamma.example.org"); code != dnsmessage.RCodeNameError {
		t.Errorf("a name that was not asked for, when nothing else is left: %v", code)
	}
	if why := (&jobDoor{w: w, space: d.space, files: w.sockets(nettest.Job(t))}).reopen(tcp("7"), "example.net"); !strings.Contains(why, "example.net") {
		t.Errorf("opened for what no rule allows: %q", why)
	}
	if why := (&jobDoor{w: w, space: d.space, files: w.sockets(nettest.Job(t))}).reopen(`{"more":1}`, ""); why == "" {
		t.Error("opened with rules that cannot be read")
	}
}

// TestBytes: exactly as many bytes as the rules allow pass, in all connections together, and no connection after that is made.
func TestBytes(t *testing.T) {
	for _, up := range []bool{true, false} {
		w := newWorld(t, plenty)
		limits := network.Bytes{Down: 5000}
		if up {
			limits = network.Bytes{Up: 5000}
		}
		d := w.open(mustRules(t, &network.Rules{
			Allow: []network.Rule{{Host: "*.example.org", Ports: []uint16{7}, Protocol: "tcp"}}, Bytes: limits,
			Private: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		}), "")
		w.echo(alpha, 7)
		says(t, d.dial("alpha.example.org"), strings.Repeat("x", 3000))
		conn := d.dial("alpha.example.org")
		_, _ = io.WriteString(conn, strings.Repeat("y", 3000))
		got, _ := io.ReadAll(conn)
		if len(got) > 2000 {
			t.Errorf("up %v: %d bytes came back, more than were left", up, len(got))
		}
		if conn, err := d.space.Dial(netip.AddrPortFrom(d.mustFind("alpha.example.org"), 7)); err == nil {
			mustEnd(t, conn)
		}
		var s control.Summary
		var denials []control.Denial
		sandboxtest.Eventually(t, 20*time.Second, "the denial is recorded", func() bool {
			next := d.report()
			s.BytesUp, s.BytesDown, denials = s.BytesUp+next.BytesUp, s.BytesDown+next.BytesDown, append(denials, next.Denials...)
			s.Connections += next.Connections
			return len(denials) > 0
		})
		if up && s.BytesUp != 5000 || !up && s.BytesDown != 5000 {
			t.Errorf("up %v: %+v", up, s)
		}
		if !strings.Contains(denials[0].Why, "as many bytes as the rules allow") {
			t.Errorf("%+v", denials)
		}
		if s.Connections != 2 {
			t.Errorf("up %v: %d connections were allowed, want 2", up, s.Connections)
		}
		d.update(tcp("7"))
		says(t, d.dial("alpha.example.org"), "more")
	}
}

func (d *jobDoor) server() *door { return d.w.server.doors[d.number] }

// doorConns is the maximum of connections in tests.
const doorConns = 256

// TestConnections: as many connections as the maximum are open at once, the next one is reset, and one that is closed makes room.
func TestConnections(t *testing.T) {
	w := newWorld(t, plenty)
	w.echo(alpha, 7)
	d := w.open(tcp("7"), "")
	var open []*net.TCPConn
	for range doorConns {
		conn := d.dial("alpha.example.org")
		says(t, conn, "x")
		open = append(open, conn)
	}
	mustEnd(t, d.dial("alpha.example.org"))
	s := d.report()
	if s.Connections != doorConns || s.Denied != 1 || len(s.Denials) != 1 || !strings.Contains(s.Denials[0].Why, "256 connections") {
		t.Errorf("%+v", s)
	}
	open[0].Close()
	sandboxtest.Eventually(t, 20*time.Second, "a connection makes room", func() bool {
		conn := d.dial("alpha.example.org")
		defer conn.Close()
		_, _ = io.WriteString(conn, "x")
		n, _ := conn.Read(make([]byte, 1))
		return n == 1
	})
}

// TestFiles: the descriptors of the process bound all doors, and those that are closed give them back.
func TestFiles(t *testing.T) {
	w := newWorld(t, ownFiles+2*doorFiles+1+1+dialFiles)
	w.echo(alpha, 7)
	d := w.open(tcp("7"), "")
	left := w.server.files.left.Load()
	says(t, d.dial("alpha.example.org"), "x")
	other := w.open(tcp("7"), "")
	third := &jobDoor{w: w, files: w.sockets(nettest.Job(t))}
	if why := third.reopen(tcp("7"), ""); why == "" {
		t.Error("a third door was opened")
	}
	if s := other.summary(control.KindClose); s.Connections != 0 {
		t.Errorf("%+v", s)
	}
	if why := third.reopen(tcp("7"), ""); why != "" {
		t.Error(why)
	}
	third.summary(control.KindClose)
	d.update(`{}`)
	sandboxtest.Eventually(t, 20*time.Second, "all descriptors are given back", func() bool { return w.server.files.left.Load() == left })
}

// TestDoorsApart: a job sees neither the names nor the addresses of another job's door.
func TestDoorsApart(t *testing.T) {
	w := newWorld(t, plenty)
	w.echo(alpha, 7)
	first := w.open(tcp("7"), "")
	second := w.open(`{"allow":[{"host":"beta.example.org","ports":[7],"protocol":"tcp"}],`+everything+`}`, "")
	addr := first.mustFind("alpha.example.org")
	second.refused(addr, 7)
	if got := second.mustFind("beta.example.org"); got != addr {
		t.Errorf("the first address of a door is %s, of the other %s", got, addr)
	}
	first.summary(control.KindClose)
	first.refused(addr, 7)
	if s := second.report(); s.Connections != 0 || s.Denied != 0 {
		t.Errorf("%+v", s)
	}
}

// TestTaken: ports that the job has taken are its own affair. The name cannot be looked up as long as corral cannot listen.
func TestTaken(t *testing.T) {
	w := newWorld(t, plenty)
	w.echo(alpha, 7)
	job := nettest.Job(t)
	all := job.Listen(netip.MustParseAddrPort("0.0.0.0:7"))
	d := &jobDoor{w: w, space: job, files: w.sockets(job)}
	if why := d.reopen(tcp("7"), ""); why != "" {
		t.Fatal(why)
	}
	if _, code := d.lookup("alpha.example.org"); code != dnsmessage.RCodeServerFailure {
		t.Errorf("%v, want SERVFAIL", code)
	}
	if s := d.report(); len(s.Denials) != 1 || !strings.Contains(s.Denials[0].Why, "port 7") {
		t.Errorf("%+v", s)
	}
	all.Close()
	own := job.Listen(netip.AddrPortFrom(firstName.Next(), 7)) // the address of the second name
	defer own.Close()
	says(t, d.dial("alpha.example.org"), "hello")
	if _, code := d.lookup("beta.example.org"); code != dnsmessage.RCodeServerFailure {
		t.Errorf("%v, want SERVFAIL", code)
	}
}

// TestNamesOverTCP: the DNS server answers over TCP, too.
func TestNamesOverTCP(t *testing.T) {
	w := newWorld(t, plenty)
	d := w.open(tcp("7"), "")
	conn, err := d.space.Dial(resolver)
	if err != nil {
		t.Fatal(err)
	}
	question := dnsmessage.Question{Name: dnsmessage.MustNewName("alpha.example.org."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
	m := dnsmessage.Message{Questions: []dnsmessage.Question{question}}
	query, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(append([]byte{0, byte(len(query))}, query...)); err != nil {
		t.Fatal(err)
	}
	size := make([]byte, 2)
	if _, err := io.ReadFull(conn, size); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, int(size[0])<<8|int(size[1]))
	if _, err := io.ReadFull(conn, reply); err != nil {
		t.Fatal(err)
	}
	if err := m.Unpack(reply); err != nil || len(m.Answers) != 1 {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestReopen: after a restart of the process, the sockets of a door may be in any state, and the door works.
func TestReopen(t *testing.T) {
	w := newWorld(t, plenty)
	w.echo(alpha, 7)
	d := w.open(tcp("7"), "")
	says(t, d.dial("alpha.example.org"), "hello")
	d.summary(control.KindClose)
	listening := int(d.files[2].Fd())
	if err := unix.Bind(listening, &unix.SockaddrInet4{Addr: [4]byte{198, 18, 0, 1}}); err == nil {
		_ = unix.Listen(listening, 1)
	}
	_ = unix.Connect(listening, &unix.SockaddrInet4{Addr: [4]byte{198, 18, 0, 1}, Port: 9})
	if why := d.reopen(tcp("7"), ""); why != "" {
		t.Fatal(why)
	}
	says(t, d.dial("alpha.example.org"), "hello")
}

// TestManyNames: a job that looks up more names than the maximum gets no address for them, and each of the others has its own.
func TestManyNames(t *testing.T) {
	w := newWorld(t, plenty)
	d := w.open(tcp("7"), "").server()
	addrs := map[netip.Addr]string{}
	for n := range maxNames + 10 {
		name := fmt.Sprintf("n%d.example.org", n)
		addr, result := d.Lookup(name, true)
		if (result == names.Found) != (n < maxListeners) {
			t.Fatalf("name %d: %v", n, result)
		}
		if other := addrs[addr]; other != "" && result == names.Found {
			t.Fatalf("%s and %s have the address %s", name, other, addr)
		}
		addrs[addr] = name
	}
	if len(d.hosts) != maxNames || d.sites != maxListeners {
		t.Errorf("%d names with %d listeners", len(d.hosts), d.sites)
	}
	if addr, result := d.Lookup("n0.example.org", true); result != names.Found || addr != firstName {
		t.Errorf("a former name: %v, %v", addr, result)
	}
	s := d.record.take()
	if len(s.Denials) != control.MaxDenials || s.Denied != maxNames+10-maxListeners {
		t.Errorf("%d denials of %d", len(s.Denials), s.Denied)
	}
}

// TestFlood: a job that connects and looks up in all ways at once costs others nothing, and the log is bounded.
func TestFlood(t *testing.T) {
	w := newWorld(t, plenty)
	w.echo(alpha, 7)
	good, bad := w.open(tcp("7"), ""), w.open(tcp("7"), "")
	bad.mustFind("alpha.example.org")
	var work sync.WaitGroup
	for n := range 4 {
		work.Go(func() {
			for i := range sandboxtest.Scale(500) {
				_, _ = bad.server().Lookup(fmt.Sprintf("n%d-%d.example.net", n, i), true)
				if conn, err := bad.space.Dial(netip.AddrPortFrom(firstName, 7)); err == nil {
					conn.Close()
				}
			}
		})
	}
	for range 20 {
		says(t, good.dial("alpha.example.org"), "hello")
	}
	work.Wait()
	s := bad.report()
	if s.Denied < int64(4*sandboxtest.Scale(500)) || len(s.Denials) > control.MaxDenials {
		t.Errorf("%d denied, %d of them named", s.Denied, len(s.Denials))
	}
	if s := good.report(); s.Connections != 20 || s.Denied != 0 {
		t.Errorf("%+v", s)
	}
}

// TestLogBounded: of many lines, some are written, the next one says how many were not, and text is escaped.
func TestLogBounded(t *testing.T) {
	w := newWorld(t, plenty)
	d := w.open(tcp("7"), "").server()
	burst := int(logRate.Burst)
	for n := range 10 * burst {
		d.deny(control.Denial{Name: fmt.Sprintf("n%d\u202e\n.example.org", n), Why: strings.Repeat("x", 1<<16)}, false)
	}
	lines := w.log.lines(t)
	if len(lines) < burst || len(lines) == 10*burst {
		t.Errorf("%d lines, want %d and some more", len(lines), burst)
	}
	unlogged := 10*burst - len(lines)
	for _, line := range lines { // those that said how many were not written before them
		if n, ok := line["unlogged"].(float64); ok {
			unlogged -= int(n)
		}
	}
	d.log.rate = ratelimit.Rate{Burst: 1e6}
	d.deny(control.Denial{Name: "last"}, false)
	all := w.log.lines(t)
	if n := all[len(all)-1]["unlogged"]; unlogged == 0 || n != float64(unlogged) {
		t.Errorf("%v lines unlogged, want %d", n, unlogged)
	}
	for line := range strings.Lines(w.log.b.String()) {
		if len(line) > 2000 || strings.Contains(line, "\u202e") {
			t.Errorf("%d bytes: %.200q", len(line), line)
		}
	}
}

// TestMessages: a message that no supervisor of this version sends ends the process, which closes all doors.
func TestMessages(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	sandboxtest.Leaks(t)
	open := func(t *testing.T, door uint64) []byte {
		m, err := control.Encode(control.Open{Door: door, Access: control.Access{Rules: json.RawMessage(`{}`)}})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	names, err := control.Encode(control.Names{Hosts: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, message := range map[string][]byte{
		"without its file": names,
		"unknown":          {99, '{', '}'}, "a reply": control.Reply{Kind: control.KindOpened}.Encode(),
		"malformed": append([]byte{byte(control.KindReport)}, "{}"...), "long": make([]byte, control.MaxMessage+1),
	} {
		w := newWorld(t, plenty)
		d := w.open(tcp("7"), "")
		addr := d.mustFind("alpha.example.org")
		w.send(message)
		if err := <-w.served; !errors.Is(err, control.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
		d.refused(addr, 7)
		w.served <- nil
	}
	w := newWorld(t, plenty)
	job := nettest.Job(t)
	for _, files := range [][]*os.File{nil, w.sockets(job)[:2], slices.Repeat([]*os.File{job.TCP()}, 4), slices.Repeat([]*os.File{job.TCP()}, 3)} {
		w.send(open(t, 5), files...)
		if why := w.reply(control.KindOpened, 5); why == "" {
			t.Errorf("a door with %d descriptors was opened", len(files))
		}
	}
	if n := w.server.files.left.Load(); n != plenty-ownFiles {
		t.Errorf("%d descriptors are left, want %d", n, plenty-ownFiles)
	}
	other := nettest.Job(t)
	sockets := w.sockets(other)
	for _, want := range []string{"", "the door is open already"} {
		w.send(open(t, 6), sockets...)
		if why := w.reply(control.KindOpened, 6); why != want {
			t.Errorf("%q, want %q", why, want)
		}
	}
	m, _ := control.Encode(control.Report{Door: 77})
	w.send(m)
	if text := w.reply(control.KindReported, 77); text != "" {
		t.Errorf("a report of no door: %q", text)
	}
}

// TestClosedMeanwhile: a site that was closed, or is not allowed any more, while a connection or its listener was made, gets neither.
func TestClosedMeanwhile(t *testing.T) {
	w := newWorld(t, plenty)
	w.echo(alpha, 7)
	job := w.open(tcp("7"), "")
	job.mustFind("alpha.example.org")
	d := job.server()
	h := d.hosts["alpha.example.org"]
	s := h.sites[7]
	left := w.server.files.left.Load()
	job.update(`{}`)
	if conn, err := s.dial(t.Context()); err == nil {
		t.Errorf("connected to %s", conn.RemoteAddr())
	}
	if got := w.server.files.left.Load(); got != left+1 {
		t.Errorf("%d descriptors are left, want %d", got, left+1)
	}
	if len(s.servers) > 0 {
		t.Error("a closed site has a connection")
	}
	if d.add(h, network.Port{Number: 7, Protocol: network.TCP}, s.listener) {
		t.Error("a listener that the rules do not allow was added")
	}
}

// A changing dialer calls a function while it connects.
type changing struct {
	Dialer
	change func()
}

// Dial implements Dialer.
func (c changing) Dial(ctx context.Context, name string, port uint16, private []netip.Prefix) (net.Conn, error) {
	conn, err := c.Dialer.Dial(ctx, name, port, private)
	c.change()
	return conn, err
}

// TestAddressMeanwhile: an address that the rules do not allow any more when the connection to it is made is not reached.
func TestAddressMeanwhile(t *testing.T) {
	w := newWorld(t, plenty)
	w.echo(alpha, 7)
	job := w.open(tcp("7"), "")
	job.mustFind("alpha.example.org")
	d := job.server()
	s := d.hosts["alpha.example.org"].sites[7]
	for _, tt := range []struct {
		rules string
		want  error
	}{
		{tcp("7"), nil},
		{`{"allow":[{"host":"*.example.org","ports":[7],"protocol":"tcp"}]}`, errClosed}, // without private
	} {
		w.server.Dialer = changing{w, func() { d.update(w.access(tt.rules)) }}
		conn, err := s.dial(t.Context())
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.rules, err, tt.want)
		}
		if err == nil {
			conn.Close()
		}
		if len(s.servers) > 0 {
			t.Errorf("%s: a connection is left", tt.rules)
		}
	}
}

// TestAgain: a door that another process had before says once that what that one counted is lost.
func TestAgain(t *testing.T) {
	w := newWorld(t, plenty)
	d := w.open(`{}`, "")
	if s := d.summary(control.KindClose); s.Lost {
		t.Errorf("a new door: %+v", s)
	}
	d.number++
	w.last = d.number
	m, err := control.Encode(control.Open{Door: d.number, Name: "job 1", Access: w.access(`{}`), Again: true})
	if err != nil {
		t.Fatal(err)
	}
	w.send(m, d.files...)
	if why := w.reply(control.KindOpened, d.number); why != "" {
		t.Fatal(why)
	}
	for _, want := range []bool{true, false} {
		if s := d.report(); s.Lost != want {
			t.Errorf("%+v, want %v", s, want)
		}
	}
}
