package names

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// table allows example.org, and broken.example.org, which has no address; it records what was looked up.
type table struct{ asked []string }

var synthetic = netip.MustParseAddr("198.18.0.2")

func (t *table) Lookup(name string, _ bool) (netip.Addr, Result) {
	t.asked = append(t.asked, name)
	switch name {
	case "example.org":
		return synthetic, Found
	case "broken.example.org":
		return netip.Addr{}, Failed
	}
	return netip.Addr{}, Denied
}

// query returns a query for one name.
func query(t testing.TB, name string, kind dnsmessage.Type, change func(*dnsmessage.Message)) []byte {
	t.Helper()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 0x1234, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
	}
	if change != nil {
		change(&m)
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func parse(t testing.TB, b []byte) dnsmessage.Message {
	t.Helper()
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil {
		t.Fatalf("%x: %v", b, err)
	}
	return m
}

func opt(version uint32) dnsmessage.Resource {
	h := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("."), Type: dnsmessage.TypeOPT, Class: 4096, TTL: version << 16}
	return dnsmessage.Resource{Header: h, Body: &dnsmessage.OPTResource{Options: []dnsmessage.Option{{Code: 10, Data: []byte("cookie00")}}}}
}

const (
	typeHTTPS = dnsmessage.Type(65)
	typeSVCB  = dnsmessage.Type(64)
)

// TestAnswers is the table of questions and what becomes of them.
func TestAnswers(t *testing.T) {
	long := strings.Repeat("a", 63)
	const (
		ok     = dnsmessage.RCodeSuccess
		no     = dnsmessage.RCodeNameError
		format = dnsmessage.RCodeFormatError
	)
	tests := []struct {
		name   string
		query  []byte
		code   dnsmessage.RCode
		answer bool // an address
		asked  string
	}{
		{"allowed", query(t, "example.org.", dnsmessage.TypeA, nil), ok, true, "example.org"},
		{"mixed case", query(t, "eXample.ORG.", dnsmessage.TypeA, nil), ok, true, "example.org"},
		{"AAAA", query(t, "example.org.", dnsmessage.TypeAAAA, nil), ok, false, "example.org"},
		{"HTTPS", query(t, "example.org.", typeHTTPS, nil), ok, false, "example.org"},
		{"SVCB", query(t, "example.org.", typeSVCB, nil), ok, false, "example.org"},
		{"TXT", query(t, "example.org.", dnsmessage.TypeTXT, nil), ok, false, "example.org"},
		{"ANY", query(t, "example.org.", dnsmessage.TypeALL, nil), ok, false, "example.org"},
		{"no address", query(t, "broken.example.org.", dnsmessage.TypeA, nil), dnsmessage.RCodeServerFailure, false, "broken.example.org"},
		{"denied", query(t, "secret.example.net.", dnsmessage.TypeA, nil), no, false, "secret.example.net"},
		{"denied TXT", query(t, "secret.example.net.", dnsmessage.TypeTXT, nil), no, false, "secret.example.net"},
		{"root", query(t, ".", dnsmessage.TypeNS, nil), no, false, ""},
		{"longest", query(t, long+"."+long+"."+long+"."+long[:61]+".", dnsmessage.TypeA, nil), no, false, long + "." + long + "." + long + "." + long[:61]},
		{"bytes", query(t, "ex\x00ample.org.", dnsmessage.TypeA, nil), no, false, ""},
		{"a slash", query(t, "example.org/.net.", dnsmessage.TypeA, nil), no, false, ""},
		{"a space", query(t, "example.org .", dnsmessage.TypeA, nil), no, false, ""},
		{"UTF-8", query(t, "exämple.org.", dnsmessage.TypeA, nil), no, false, ""},
		{"Kelvin sign", query(t, "\u212aexample.org.", dnsmessage.TypeA, nil), no, false, ""},
		{"another class", query(t, "example.org.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Questions[0].Class = dnsmessage.ClassCHAOS }), dnsmessage.RCodeRefused, false, ""},
		{"EDNS", query(t, "example.org.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Additionals = []dnsmessage.Resource{opt(0)} }), ok, true, "example.org"},
		{"two EDNS", query(t, "example.org.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Additionals = []dnsmessage.Resource{opt(0), opt(0)} }), format, false, ""},
		{"many records", query(t, "example.org.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Additionals = aRecords(9) }), format, false, ""},
		{"a dynamic update", query(t, "example.org.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.OpCode = 5 }), dnsmessage.RCodeNotImplemented, false, ""},
		{"two questions", query(t, "example.org.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Questions = append(m.Questions, m.Questions[0]) }), format, false, ""},
		{"no question", query(t, "example.org.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Questions = nil }), format, false, ""},
		{"an answer", query(t, "example.org.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Answers = aRecords(1) }), format, false, ""},
		{"an authority", query(t, "example.org.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Authorities = aRecords(1) }), format, false, ""},
		{"truncated", query(t, "example.org.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Truncated = true }), format, false, ""},
		{"cut", query(t, "example.org.", dnsmessage.TypeA, nil)[:20], format, false, ""},
		{"a pointer to itself", append(query(t, ".", dnsmessage.TypeA, nil)[:12], 0xc0, 12, 0, 1, 0, 1), format, false, ""},
		{"a dot in a label", append(query(t, ".", dnsmessage.TypeA, nil)[:12], "\x0bexample.org\x00\x00\x01\x00\x01"...), format, false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var table table
			reply := Answer(tt.query, &table)
			if len(reply) > 512 {
				t.Errorf("the answer has %d bytes", len(reply))
			}
			m := parse(t, reply)
			if m.ID != 0x1234 || !m.Response || m.Authoritative || m.RCode != tt.code {
				t.Errorf("header %+v, want code %v", m.Header, tt.code)
			}
			if got := strings.Join(table.asked, " "); got != tt.asked {
				t.Errorf("looked up %q, want %q", got, tt.asked)
			}
			checkAddress(t, m, tt.answer)
			// RFC 2308: a negative answer says how long to remember it.
			negative := m.RCode == no || m.RCode == ok && !tt.answer
			if negative != (len(m.Authorities) == 1 && m.Authorities[0].Header.Type == dnsmessage.TypeSOA) {
				t.Errorf("authorities %v", m.Authorities)
			}
		})
	}
}

func checkAddress(t *testing.T, m dnsmessage.Message, want bool) {
	t.Helper()
	if !want {
		if len(m.Answers) > 0 {
			t.Errorf("answers %v, want none", m.Answers)
		}
		return
	}
	if len(m.Answers) != 1 || m.Answers[0].Header.Name != m.Questions[0].Name {
		t.Fatalf("answers %v, want one", m.Answers)
	}
	if a, ok := m.Answers[0].Body.(*dnsmessage.AResource); !ok || a.A != synthetic.As4() {
		t.Errorf("answer %v, want %s", m.Answers[0], synthetic)
	}
}

func aRecords(n int) (list []dnsmessage.Resource) {
	for range n {
		h := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("example.org."), Class: dnsmessage.ClassINET}
		list = append(list, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{}})
	}
	return list
}

func TestNoAnswer(t *testing.T) {
	for name, q := range map[string][]byte{
		"empty":    nil,
		"short":    make([]byte, 11),
		"long":     make([]byte, maxQuery+1),
		"a reply":  query(t, "example.org.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Response = true }),
		"all ones": bytes.Repeat([]byte{0xff}, 100),
	} {
		if reply := Answer(q, &table{}); reply != nil {
			t.Errorf("%s: answered %x", name, reply)
		}
	}
}

func TestEDNS(t *testing.T) {
	for version, want := range map[uint32]dnsmessage.RCode{0: dnsmessage.RCodeSuccess, 1: 16} {
		m := parse(t, Answer(query(t, "example.org.", dnsmessage.TypeA, func(m *dnsmessage.Message) {
			m.Additionals = []dnsmessage.Resource{opt(version)}
		}), &table{}))
		if len(m.Additionals) != 1 || m.Additionals[0].Header.Class != udpSize {
			t.Fatalf("version %d: %v", version, m.Additionals)
		}
		if code := m.Additionals[0].Header.ExtendedRCode(m.RCode); code != want {
			t.Errorf("version %d: code %v, want %v", version, code, want)
		}
		if addressed := len(m.Answers) == 1; addressed != (version == 0) {
			t.Errorf("version %d: answers %v", version, m.Answers)
		}
	}
	if m := parse(t, Answer(query(t, "example.org.", dnsmessage.TypeA, nil), &table{})); len(m.Additionals) != 0 {
		t.Errorf("an answer to a query without EDNS has %v", m.Additionals)
	}
}

// TestServeUDP: a query that is too long by one byte, and one that is malformed, get no address; the next one does.
func TestServeUDP(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); ServeUDP(server, &table{}) }()
	conn, err := net.Dial("udp", server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	q := query(t, "example.org.", dnsmessage.TypeA, nil)
	for _, message := range [][]byte{{}, append(bytes.Clone(q), make([]byte, maxQuery)...), q} {
		if _, err := conn.Write(message); err != nil {
			t.Fatal(err)
		}
	}
	reply := make([]byte, 513)
	n, err := conn.Read(reply)
	if err != nil {
		t.Fatal(err)
	}
	checkAddress(t, parse(t, reply[:n]), true)
	server.Close()
	<-done
}

// TestServeTCP: several queries on a connection are answered, a query above the maximum ends it, and connections above the
// maximum are closed.
func TestServeTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); ServeTCP(l, &table{}) }()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	q := query(t, "example.org.", dnsmessage.TypeA, nil)
	framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...)
	first := dial()
	for range 3 {
		checkAddress(t, parse(t, exchange(t, first, framed)), true)
	}
	if _, err := first.Write(binary.BigEndian.AppendUint16(nil, maxQuery+1)); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(first); len(rest) > 0 {
		t.Errorf("after a long query: %x, %v", rest, err)
	}
	var open []net.Conn
	for range maxConns {
		open = append(open, dial())
		checkAddress(t, parse(t, exchange(t, open[len(open)-1], framed)), true)
	}
	if rest, err := io.ReadAll(dial()); len(rest) > 0 || err != nil && !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
		t.Errorf("a connection above the maximum: %x, %v", rest, err)
	}
	l.Close()
	<-done // although connections are open
}

func exchange(t *testing.T, conn net.Conn, framed []byte) []byte {
	t.Helper()
	if _, err := conn.Write(framed); err != nil {
		t.Fatal(err)
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, reply); err != nil {
		t.Fatal(err)
	}
	return reply
}

// FuzzAnswer: no query makes Answer panic; an answer is a valid message of at most 512 bytes for the same question, and has an
// address only for the name that is allowed.
func FuzzAnswer(f *testing.F) {
	f.Add(query(f, "example.org.", dnsmessage.TypeA, nil))
	f.Add(query(f, "example.net.", typeHTTPS, func(m *dnsmessage.Message) { m.Additionals = []dnsmessage.Resource{opt(1)} }))
	f.Fuzz(func(t *testing.T, q []byte) {
		var table table
		reply := Answer(q, &table)
		if reply == nil {
			return
		}
		if len(reply) > 512 {
			t.Errorf("%d bytes", len(reply))
		}
		m := parse(t, reply)
		if !m.Response || m.ID != binary.BigEndian.Uint16(q) {
			t.Errorf("header %+v", m.Header)
		}
		if len(m.Answers) > 0 && (len(table.asked) != 1 || table.asked[0] != "example.org") {
			t.Errorf("an address for %q", table.asked)
		}
	})
}
