package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"corral/internal/test/nettest"
	"corral/internal/test/sandboxtest"
)

// answers is a resolver whose n-th answer is the n-th list, then nothing.
type answers struct {
	lists [][]netip.Addr
	asked []string
}

func (a *answers) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	a.asked = append(a.asked, host)
	if len(a.lists) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	list := a.lists[0]
	a.lists = a.lists[1:]
	return list, nil
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// A fake records where it connects to.
type fake struct {
	*Dialer
	to   []netip.AddrPort
	fail map[netip.Addr]error
}

func newFake(lists ...[]netip.Addr) (*fake, *answers) {
	a := &answers{lists: lists}
	f := &fake{fail: map[netip.Addr]error{}}
	f.Dialer = &Dialer{Resolver: a, Own: func(netip.Addr) bool { return false }}
	f.connect = func(ctx context.Context, d *net.Dialer, to netip.AddrPort) (net.Conn, error) {
		f.to = append(f.to, to)
		if err := d.ControlContext(ctx, "tcp", to.String(), nil); err != nil {
			return nil, err
		}
		if err := f.fail[to.Addr()]; err != nil {
			return nil, err
		}
		client, server := net.Pipe()
		server.Close()
		return client, nil
	}
	return f, a
}

// TestSpecialRanges: the first, a middle and the last address of each range are refused, in every spelling that reaches an
// IPv4 address.
func TestSpecialRanges(t *testing.T) {
	for _, first := range []string{
		"0.0.0.0 0.1.2.3 0.255.255.255",
		"10.0.0.0 10.1.2.3 10.255.255.255",
		"100.64.0.0 100.100.100.200 100.127.255.255",
		"127.0.0.0 127.0.0.1 127.0.0.53 127.255.255.255",
		"168.63.129.16",
		"169.254.0.0 169.254.169.254 169.254.170.2 169.254.255.255",
		"172.16.0.0 172.17.0.1 172.31.255.255",
		"192.0.0.0 192.0.0.192 192.0.0.255",
		"192.0.2.0 192.0.2.255",
		"192.88.99.0 192.88.99.255",
		"192.168.0.0 192.168.255.255",
		"198.18.0.0 198.18.0.2 198.19.255.255",
		"198.51.100.0 198.51.100.255",
		"203.0.113.0 203.0.113.255",
		"224.0.0.0 239.255.255.255",
		"240.0.0.0 255.255.255.255",
	} {
		for text := range strings.FieldsSeq(first) {
			addr := netip.MustParseAddr(text)
			for _, spelling := range spellings(addr) {
				mustRefuse(t, spelling)
			}
		}
	}
	for _, text := range []string{
		"::", "::1", "::2", "::7f00:1", "::ffff:0:8.8.8.8", "64:ff9b::808:808", "64:ff9b:1::1", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff",
		"100::", "100::ffff", "2001::", "2001:0:1::1", "2001:2::1", "2001:10::1", "2001:1ff:ffff::", "2001:db8::1", "2001:db8:ffff::", "2002::", "2002:808:808::1",
		"2002:ffff:ffff::", "3fff::1", "3fff:fff::", "fc00::", "fd00:ec2::254", "fdff:ffff::", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1", "feff::1", "ff02::1", "ffff::",
		"1fff::1", "4000::1", "5f00::1", "8000::", "2606:4700::1%eth0",
	} {
		mustRefuse(t, netip.MustParseAddr(text))
	}
	mustRefuse(t, netip.Addr{})
	for _, text := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "168.63.129.15", "169.253.255.255",
		"169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.0.3.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "203.0.114.0",
		"223.255.255.255", "2606:4700:4700::1111", "2001:200::", "2001:4860:4860::8888", "2003::1", "2a00::1", "3ffe::1", "3fff:1000::",
	} {
		f, _ := newFake(addrs(text))
		if _, err := f.Dial(t.Context(), "example.org", 443, nil); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// spellings returns an IPv4 address in each form in which it can be reached.
func spellings(a netip.Addr) []netip.Addr {
	b := a.As4()
	in := func(prefix string, at int) netip.Addr {
		c := netip.MustParseAddr(prefix).As16()
		copy(c[at:], b[:])
		return netip.AddrFrom16(c)
	}
	list := []netip.Addr{a, in("::ffff:0:0", 12), in("::", 12), in("::ffff:0:0:0", 12), in("64:ff9b::", 12), in("64:ff9b:1::", 12), in("2002::", 2), in("2001::", 4)}
	teredo := in("2001::", 12).As16() // the client's address is inverted
	for n := 12; n < 16; n++ {
		teredo[n] = ^teredo[n]
	}
	return append(list, netip.AddrFrom16(teredo))
}

func mustRefuse(t *testing.T, addr netip.Addr) {
	t.Helper()
	f, _ := newFake([]netip.Addr{addr})
	conn, err := f.Dial(t.Context(), "example.org", 443, []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")})
	if refused := (*Refused)(nil); conn != nil || !errors.As(err, &refused) || len(f.to) > 0 {
		t.Errorf("%s: %v, connected to %v", addr, err, f.to)
	}
	if err := f.recheck("example.org", netip.AddrPortFrom(addr, 443), netip.AddrPortFrom(addr, 443).String(), nil); err == nil {
		t.Errorf("%s passes the check before connect(2)", addr)
	}
	if err := f.Check("example.org", addr, nil); err == nil && !addr.Is4In6() {
		t.Errorf("%s passes the check of connections", addr)
	}
}

// TestPrivate: what an operator opens, and what it cannot open.
func TestPrivate(t *testing.T) {
	for _, tt := range []struct {
		addr, private string
		want          string // in the error; empty: allowed
	}{
		{"10.1.2.3", "10.0.0.0/8", ""},
		{"10.1.2.3", "10.1.2.0/24", ""},
		{"10.1.2.3", "10.1.2.3/32", ""},
		{"10.1.2.3", "10.2.0.0/16", "network.private: [10.0.0.0/8]"},
		{"10.1.2.3", "0.0.0.0/0", "a private network"},
		{"10.1.2.3", "8.0.0.0/5", "a private network"},
		{"169.254.169.254", "169.254.0.0/16", ""},
		{"169.254.169.254", "160.0.0.0/4", "metadata"},
		{"fd00:ec2::254", "fd00::/8", ""},
		{"fd00:ec2::254", "10.0.0.0/8", "network.private: [fc00::/7]"},
		{"198.18.0.2", "198.18.0.0/15", "synthetic"},
		{"224.0.0.1", "224.0.0.0/4", "multicast"},
		{"0.0.0.0", "0.0.0.0/8", "this host"},
		{"64:ff9b::a01:203", "64:ff9b::/96", "NAT64"},
		{"::ffff:10.1.2.3", "10.0.0.0/8", ""}, // an A record of package net
	} {
		f, _ := newFake(addrs(tt.addr))
		_, err := f.Dial(t.Context(), "example.org", 443, []netip.Prefix{netip.MustParsePrefix(tt.private)})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s with %s: %v, want %q", tt.addr, tt.private, err, tt.want)
		}
	}
}

// TestRebinding: the name is looked up once, and the address that was checked is the one that is connected to, although the
// next answer differs.
func TestRebinding(t *testing.T) {
	f, a := newFake(addrs("1.1.1.1"), addrs("127.0.0.1"))
	if _, err := f.Dial(t.Context(), "example.org", 443, nil); err != nil {
		t.Fatal(err)
	}
	if want := netip.MustParseAddrPort("1.1.1.1:443"); !slices.Equal(f.to, []netip.AddrPort{want}) {
		t.Errorf("connected to %v, want %s", f.to, want)
	}
	if !slices.Equal(a.asked, []string{"example.org."}) {
		t.Errorf("looked up %q, want one look-up without the search list", a.asked)
	}
	for _, address := range []string{"127.0.0.1:443", "1.1.1.1:444", "1.1.1.2:443", "[::ffff:1.1.1.1]:443", "example.org:443", ""} {
		if err := f.recheck("example.org", netip.MustParseAddrPort("1.1.1.1:443"), address, nil); err == nil {
			t.Errorf("connect(2) with %q passes", address)
		}
	}
}

// TestAddresses: addresses that must not be reached are left out, those that fail are followed by the next.
func TestAddresses(t *testing.T) {
	f, _ := newFake(addrs("127.0.0.1", "1.1.1.1", "10.0.0.1", "2606:4700::1"))
	f.fail[netip.MustParseAddr("1.1.1.1")] = unix.ECONNREFUSED
	if _, err := f.Dial(t.Context(), "example.org", 80, nil); err != nil {
		t.Fatal(err)
	}
	if want := []netip.AddrPort{netip.MustParseAddrPort("1.1.1.1:80"), netip.MustParseAddrPort("[2606:4700::1]:80")}; !slices.Equal(f.to, want) {
		t.Errorf("connected to %v, want %v", f.to, want)
	}
	many := make([]netip.Addr, 100)
	for n := range many {
		many[n] = netip.AddrFrom4([4]byte{1, 1, 1, byte(n)})
	}
	f, _ = newFake(many)
	for _, a := range many {
		f.fail[a] = unix.ECONNREFUSED
	}
	if _, err := f.Dial(t.Context(), "example.org", 80, nil); !errors.Is(err, unix.ECONNREFUSED) || len(f.to) != maxAddrs {
		t.Errorf("%v after %d addresses, want %d", err, len(f.to), maxAddrs)
	}
	f, _ = newFake(addrs("2606:4700::1%lo"))
	if _, err := f.Dial(t.Context(), "example.org", 80, nil); err == nil {
		t.Error("connected to an address with a zone")
	}
	f, _ = newFake(nil)
	if _, err := f.Dial(t.Context(), "example.org", 80, nil); err == nil {
		t.Error("connected without an address")
	}
	f, _ = newFake()
	if _, err := f.Dial(t.Context(), "example.org", 80, nil); err == nil || !strings.Contains(err.Error(), "no such host") {
		t.Errorf("a name that does not exist: %v", err)
	}
}

// TestOwn: addresses of this host are refused, unless they are opened by themselves.
func TestOwn(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Root)
	space := nettest.New(t, netip.MustParsePrefix("5.6.7.8/24"))
	space.Do(func() error {
		for addr, want := range map[string]bool{
			"5.6.7.8": true, "127.0.0.1": true, "127.0.0.53": true, "::1": true,
			"5.6.7.9": true, // all of the network is local: it is on lo
			"5.6.8.1": false, "1.1.1.1": false, "2606:4700::1": false,
		} {
			if got := isOwn(netip.MustParseAddr(addr)); got != want {
				t.Errorf("%s is this host's: %v, want %v", addr, got, want)
			}
		}
		return nil
	})
	f, _ := newFake(addrs("5.6.7.8"), addrs("5.6.7.8"), addrs("5.6.7.8"))
	f.Own = func(a netip.Addr) bool { return a == netip.MustParseAddr("5.6.7.8") }
	for private, want := range map[string]bool{"5.6.7.0/24": false, "5.6.7.8/32": true, "0.0.0.0/0": false} {
		_, err := f.Dial(t.Context(), "example.org", 80, []netip.Prefix{netip.MustParsePrefix(private)})
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "network.private: [5.6.7.8/32]") {
			t.Errorf("%s: %v, want allowed %v", private, err, want)
		}
	}
}

// TestConnect: a connection that New's dialer makes goes through the check before connect(2).
func TestConnect(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to := netip.MustParseAddrPort(l.Addr().String())
	d := New(&answers{lists: [][]netip.Addr{addrs("127.0.0.1"), addrs("127.0.0.1")}})
	if _, err := d.Dial(t.Context(), "example.org", to.Port(), nil); err == nil {
		t.Error("connected to loopback")
	}
	if conn, err := d.try(t.Context(), "example.org", to, nil, 1); err == nil {
		conn.Close()
		t.Error("the check before connect(2) does not happen")
	}
	conn, err := d.Dial(t.Context(), "example.org", to.Port(), []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
