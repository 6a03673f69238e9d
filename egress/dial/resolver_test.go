package dial

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"corral/egress/names"
)

// table is a DNS server's: it knows one name, and counts what it is asked.
type table struct{ asked chan string }

func (t table) Lookup(name string, _ bool) (netip.Addr, names.Result) {
	t.asked <- name
	if name == "example.org" {
		return netip.MustParseAddr("192.0.2.1"), names.Found
	}
	return netip.Addr{}, names.Denied
}

// serve runs a DNS server at an address with the port, and returns its table. The port 0 is any.
func serve(t *testing.T, addr string) (*net.UDPAddr, table) {
	t.Helper()
	conn, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	list := table{make(chan string, 100)}
	done := make(chan struct{})
	go func() { defer close(done); names.ServeUDP(conn, list) }()
	t.Cleanup(func() { conn.Close(); <-done })
	return conn.LocalAddr().(*net.UDPAddr), list
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestReadSystem: servers and names are those of the files, in their order.
func TestReadSystem(t *testing.T) {
	conf := write(t, "# a comment\nsearch example.net\nnameserver 192.0.2.53 # one\n nameserver\t2001:db8::53\nnameserver no\n"+
		"nameserver ::1%lo\nnameserver 192.0.2.54\nserver 192.0.2.55\n")
	hosts := write(t, "# "+strings.Repeat("x", 1<<17)+"\n192.0.2.7 One.example.org one\n2001:db8::7\tone.example.org. # two\nx y\n192.0.2.8\n; 192.0.2.9 nine\n")
	s, err := ReadSystem(conf, hosts)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, server := range s.files.Load().servers {
		got = append(got, server.String())
	}
	if want := []string{"192.0.2.53:53", "[2001:db8::53]:53", "[::1%1]:53"}; !slices.Equal(got, want) {
		t.Errorf("servers %v, want %v", got, want)
	}
	found, err := s.LookupNetIP(t.Context(), "ip", "one.example.org.")
	if want := addrs("192.0.2.7", "2001:db8::7"); err != nil || !slices.Equal(found, want) {
		t.Errorf("%v, %v, want %v", found, err, want)
	}
	if len(s.files.Load().hosts) != 2 {
		t.Errorf("names %v", s.files.Load().hosts)
	}
	missing := filepath.Join(t.TempDir(), "no")
	if s, err = ReadSystem(missing, missing); err != nil || len(s.files.Load().servers) != 1 || s.files.Load().servers[0].String() != "127.0.0.1:53" {
		t.Errorf("without files: %v, %v", s, err)
	}
	if _, err := ReadSystem(t.TempDir(), missing); err == nil {
		t.Error("a directory was read")
	}
}

// TestReadAgain: what is read later replaces what was read before, unless it cannot be read.
func TestReadAgain(t *testing.T) {
	s, err := ReadSystem(write(t, "nameserver 192.0.2.53\n"), write(t, "192.0.2.7 old.example.org\n"))
	if err != nil {
		t.Fatal(err)
	}
	device := func(name string) (int, error) {
		if name == "wlan0" {
			return 7, nil
		}
		return 0, errors.New("no such device")
	}
	if err := s.Read(strings.NewReader("nameserver fe80::1%wlan0\nnameserver fe80::2%gone\n"), strings.NewReader("192.0.2.8 new.example.org\n"), device); err != nil {
		t.Fatal(err)
	}
	if err := s.Read(iotest.ErrReader(io.ErrUnexpectedEOF), nil, device); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v", err)
	}
	f := s.files.Load()
	if len(f.servers) != 2 || f.servers[0].String() != "[fe80::1%7]:53" || f.servers[1].String() != "[fe80::2%gone]:53" {
		t.Errorf("servers %v", f.servers)
	}
	if len(f.hosts) != 1 || len(f.hosts["new.example.org"]) != 1 {
		t.Errorf("names %v", f.hosts)
	}
}

// TestServers: the servers of the file are asked, whatever the host's own are, for exactly this name. If one does not answer, the
// next one is asked; a name that does not exist is not asked for again.
func TestServers(t *testing.T) {
	at, list := serve(t, "127.0.0.1:0")
	dead, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead.Close() // a port at which nobody answers
	s := new(System)
	s.files.Store(&files{servers: []netip.AddrPort{dead.LocalAddr().(*net.UDPAddr).AddrPort(), at.AddrPort()}})
	found, err := s.LookupNetIP(t.Context(), "ip", "example.org.")
	if err != nil || len(found) != 1 || found[0].Unmap() != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("%v, %v", found, err)
	}
	second, other := serve(t, "127.0.0.1:0")
	s.files.Store(&files{servers: []netip.AddrPort{at.AddrPort(), second.AddrPort()}})
	_, err = s.LookupNetIP(t.Context(), "ip", "example.net.")
	if missing := (*net.DNSError)(nil); !errors.As(err, &missing) || !missing.IsNotFound {
		t.Errorf("a name that does not exist: %v", err)
	}
	for range len(list.asked) {
		if name := <-list.asked; strings.Trim(name, ".") != "example.org" && name != "example.net" {
			t.Errorf("asked for %s", name)
		}
	}
	if len(other.asked) > 0 {
		t.Error("the next server was asked for a name that does not exist")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.LookupNetIP(ended, "ip", "example.org."); err == nil || len(other.asked) > 0 {
		t.Errorf("after the end: %v", err)
	}
}
