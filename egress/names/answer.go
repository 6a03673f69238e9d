// Package names answers a job's DNS queries. It sends none: a name that may be looked up has a synthetic address, and any
// other does not exist. So a job cannot send data to others in the names that it looks up.
package names

import (
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// Bounds of messages. Every answer fits into the 512 bytes that any client accepts.
const (
	maxQuery      = 4096
	maxAdditional = 8 // records besides the question; a client sends at most OPT and a signature
	// ttl is how long a client may keep an answer, in seconds. Rules may change at any time.
	ttl         = 60
	negativeTTL = 5
	udpSize     = 1232 // that we announce: no fragments, RFC 9715
)

// A Result says what becomes of a name.
type Result int

// The results.
const (
	Denied Result = iota // the name does not exist
	Found
	Failed // the name is allowed, but has no address now
)

// A Table knows the names of a door.
type Table interface {
	// Lookup is passed a name in lower case without the final dot, of at most 253 bytes: labels of letters, digits, hyphens
	// and underscores. address says whether the client asks for an IPv4 address.
	Lookup(name string, address bool) (netip.Addr, Result)
}

// Answer returns the answer to a query, or nil if it gets none.
func Answer(query []byte, table Table) []byte {
	if len(query) > maxQuery {
		return nil
	}
	var p dnsmessage.Parser
	head, err := p.Start(query)
	if err != nil || head.Response {
		return nil
	}
	a := answer{head: dnsmessage.Header{
		ID: head.ID, Response: true, OpCode: head.OpCode, RecursionDesired: head.RecursionDesired, RecursionAvailable: true,
	}}
	switch {
	case head.OpCode != 0:
		a.head.RCode = dnsmessage.RCodeNotImplemented
	case head.Truncated || !a.read(&p):
		a = answer{head: a.head}
		a.head.RCode = dnsmessage.RCodeFormatError
	default:
		a.decide(table)
	}
	return a.bytes()
}

// An answer is built from a query.
type answer struct {
	head     dnsmessage.Header
	question *dnsmessage.Question
	edns     bool
	badEDNS  bool       // a version that we do not know
	address  netip.Addr // invalid: none
	negative bool       // with the record that says how long to remember it
}

// read reads the rest of the query. It returns false if it is malformed.
func (a *answer) read(p *dnsmessage.Parser) bool {
	question, err := p.Question()
	if err != nil {
		return false
	}
	// A query has one question, and neither answers nor authorities.
	_, questions := p.Question()
	_, answers := p.AnswerHeader()
	_, authorities := p.AuthorityHeader()
	done := dnsmessage.ErrSectionDone
	if questions != done || answers != done || authorities != done { //nolint:errorlint // the parser returns it as it is
		return false
	}
	a.question = &question
	return a.readAdditional(p)
}

func (a *answer) readAdditional(p *dnsmessage.Parser) bool {
	for range maxAdditional {
		head, err := p.AdditionalHeader()
		if err == dnsmessage.ErrSectionDone { //nolint:errorlint // the parser returns it as it is
			return true
		}
		if err != nil {
			return false
		}
		if head.Type == dnsmessage.TypeOPT {
			if a.edns || head.Name.String() != "." {
				return false // RFC 6891: at most one
			}
			a.edns, a.badEDNS = true, head.TTL>>16&0xff != 0
		}
		if err := p.SkipAdditional(); err != nil {
			return false
		}
	}
	return false
}

func (a *answer) decide(table Table) {
	if a.badEDNS {
		return // bytes sets the code, which is longer than the header's
	}
	if a.question.Class != dnsmessage.ClassINET {
		a.head.RCode = dnsmessage.RCodeRefused
		return
	}
	a.negative = true
	name, ok := hostName(a.question.Name.String())
	if !ok {
		a.head.RCode = dnsmessage.RCodeNameError
		return
	}
	isAddress := a.question.Type == dnsmessage.TypeA
	address, result := table.Lookup(name, isAddress)
	switch {
	case result == Denied:
		a.head.RCode = dnsmessage.RCodeNameError
	case result == Found && isAddress:
		a.address, a.negative = address, false
	case isAddress:
		a.head.RCode, a.negative = dnsmessage.RCodeServerFailure, false
	}
}

// letters are those of host names. Other characters have these as their lower case, so they are checked first.
const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

// hostName returns a name as a Table gets it, and false if it cannot be the name of a host.
func hostName(name string) (string, bool) {
	name = strings.TrimSuffix(name, ".")
	if name == "" || len(name) > 253 {
		return "", false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, letters) != "" {
			return "", false
		}
	}
	return strings.ToLower(name), true
}

// bytes encodes the answer. Nothing in it can fail to be encoded: the name was decoded, and the sections are in order.
func (a answer) bytes() []byte {
	b := dnsmessage.NewBuilder(nil, a.head)
	b.EnableCompression()
	if a.question != nil {
		_ = b.StartQuestions()
		_ = b.Question(*a.question)
		a.records(&b)
	}
	message, err := b.Finish()
	if err != nil {
		return nil
	}
	return message
}

func (a answer) records(b *dnsmessage.Builder) {
	in := dnsmessage.ResourceHeader{Name: a.question.Name, Class: dnsmessage.ClassINET, TTL: ttl}
	if a.address.Is4() {
		_ = b.StartAnswers()
		_ = b.AResource(in, dnsmessage.AResource{A: a.address.As4()})
	}
	if a.negative {
		root := dnsmessage.MustNewName(".")
		in.Name, in.TTL = root, negativeTTL
		_ = b.StartAuthorities()
		_ = b.SOAResource(in, dnsmessage.SOAResource{
			NS: root, MBox: root, Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, MinTTL: negativeTTL,
		})
	}
	if !a.edns {
		return
	}
	code := a.head.RCode
	if a.badEDNS {
		const badVersion = 16
		code = badVersion
	}
	var opt dnsmessage.ResourceHeader
	_ = opt.SetEDNS0(udpSize, code, false)
	_ = b.StartAdditionals()
	_ = b.OPTResource(opt, dnsmessage.OPTResource{})
}
