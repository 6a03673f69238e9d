// Package control is the protocol between the supervisor and corral-egress, over one SOCK_SEQPACKET socket.
//
// A message is one datagram of at most MaxMessage bytes: one byte of Kind, then the rest. The supervisor's messages are
// JSON after that byte. Those of corral-egress are the number of a door and a text that the supervisor passes on unread:
// corral-egress reads what jobs and servers send, so nothing that it says is parsed by a program of root.
//
// A decoder accepts exactly what the encoder writes: a message with another spelling of the same values is ErrMalformed,
// as are unknown and repeated keys.
package control

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Bounds of messages, in bytes.
const (
	MaxMessage = 64 << 10
	MaxName    = 256
	MaxAsk     = 4096
	MaxText    = 8 << 10 // of a Reply
	// MinPlaceholder is how long a placeholder is at least, so that nobody guesses it and no other text has it.
	MinPlaceholder = 24
	// OpenDescriptors is the number of descriptors that come with an Open: a UDP socket that is bound to port 53 of the
	// job's loopback address, a TCP socket that listens there, and two unbound TCP sockets of the job's network namespace.
	OpenDescriptors = 4
	// MaxDevices is the maximum number of entries of Names.Devices. Each takes some 30 bytes.
	MaxDevices = 512
	// MaxDenials is the maximum number of entries of Summary.Denials.
	MaxDenials = 16
)

// A Kind is the first byte of a message.
type Kind byte

// The kinds of messages: to corral-egress from KindOpen to KindNames, to the supervisor KindOpened and KindReported.
const (
	KindOpen Kind = iota + 1
	KindUpdate
	KindReport
	KindClose
	KindNames
	KindOpened
	KindReported
)

// NoDoor is a number that no door has. A Report of it is answered in the order of messages, like that of a door: the answer says that all
// messages before it apply.
const NoDoor = 0

// ErrMalformed is returned for a message that no encoder of this package writes.
var ErrMalformed = errors.New("malformed control message")

// Access is what a door may reach.
type Access struct {
	Rules   json.RawMessage `json:"rules"` // policy/network.Rules
	Secrets []Secret        `json:"secrets,omitempty"`
}

// A Secret is what a placeholder stands for in one header of requests, where a rule names it.
type Secret struct {
	Name   string `json:"name"` // as rules have it
	Header string `json:"header"`
	Format string `json:"format"` // the value of the header, with {} in the secret's place
	Value  string `json:"value"`
	// Body: a request may have the placeholder in its body, where it stands for nothing and is passed on.
	Body bool `json:"body,omitempty"`
}

// An Authority issues the certificates with which TLS connections of jobs end where rules are about requests.
type Authority struct {
	Certificate []byte `json:"certificate"` // DER
	Key         []byte `json:"key"`         // PKCS #8
}

// Open makes a door. The reply is an Opened.
type Open struct {
	Door uint64 `json:"door"`
	Name string `json:"name"` // of the job or session, for the log
	// Request is the id of the job's request, for the log. Empty: the front-end has named none, or the door is a session's.
	Request string `json:"request,omitempty"`
	Access
	Ask string `json:"ask,omitempty"` // what the job asks for of the rules, see policy/network
	// Placeholder stands for secrets in all that the job knows: a text that no other door has. Empty: the job knows none.
	Placeholder string `json:"placeholder,omitempty"`
	// Authority is the one that the job trusts. nil: none, and rules about requests allow nothing.
	Authority *Authority `json:"authority,omitempty"`
	// Again: another process had the door before, and ended without a report.
	Again bool `json:"again,omitempty"`
}

// Update replaces the access of a door. What the job asked for when the door was opened still applies. There is no reply.
type Update struct {
	Door uint64 `json:"door"`
	Access
}

// Report requests a Reported.
type Report struct {
	Door uint64 `json:"door"`
}

// Close ends a door with all of its connections. The reply is a Reported, with what the door was used for.
type Close struct {
	Door uint64 `json:"door"`
}

// Names says that the host's files about names have changed. The files come with it: first a resolv.conf(5), if ResolvConf is set,
// then a hosts(5), if Hosts is set. One that does not come does not exist. There is no reply.
type Names struct {
	ResolvConf bool `json:"resolvConf,omitempty"`
	Hosts      bool `json:"hosts,omitempty"`
	// Devices are the host's network devices by name, at most MaxDevices of them, with their indexes: an address of a name server
	// can name one, and corral-egress may not ask the kernel for it.
	Devices map[string]int `json:"devices,omitempty"`
}

// A Reply is a message of corral-egress about a door. Its Text is for clients of the supervisor, which passes it on as it is.
type Reply struct {
	Kind Kind // KindOpened or KindReported
	Door uint64
	// Of KindOpened: empty, or why there is no such door. Of KindReported: a Summary, see ReadSummary; empty if there is no
	// such door.
	Text string
}

// KindOf returns the kind of a message, 0 if it is empty.
func KindOf(message []byte) Kind {
	if len(message) == 0 {
		return 0
	}
	return Kind(message[0])
}

// A Message is one of the supervisor's: an Open, Update, Report, Close or Names.
type Message interface{ kind() Kind }

func (Open) kind() Kind   { return KindOpen }
func (Update) kind() Kind { return KindUpdate }
func (Report) kind() Kind { return KindReport }
func (Close) kind() Kind  { return KindClose }
func (Names) kind() Kind  { return KindNames }

// Encode returns the bytes of a message. It fails if the message or one of its parts exceeds its maximum.
func Encode(m Message) ([]byte, error) {
	if open, ok := m.(Open); ok {
		// JSON has no other characters: the text would not be what was checked.
		for _, text := range []*string{&open.Name, &open.Request, &open.Ask} {
			*text = strings.ToValidUTF8(*text, "?")
		}
		if err := open.check(); err != nil {
			return nil, err
		}
		m = open
	}
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("control message: %w", err)
	}
	if n := 1 + len(body); n > MaxMessage {
		return nil, fmt.Errorf("the network rules or secrets need a message of %d bytes, the maximum is %d: use fewer or shorter ones", n, MaxMessage)
	}
	return append([]byte{byte(m.kind())}, body...), nil
}

// Read decodes a message.
func Read(message []byte) (Message, error) {
	kind := KindOf(message)
	if len(message) <= MaxMessage {
		switch kind { // in a table, programs that read no message would have encoding/json because of it
		case KindOpen:
			m, err := read[Open](message[1:])
			if open, ok := m.(Open); ok {
				err = open.check()
			}
			return m, err
		case KindUpdate:
			return read[Update](message[1:])
		case KindReport:
			return read[Report](message[1:])
		case KindClose:
			return read[Close](message[1:])
		case KindNames:
			return read[Names](message[1:])
		}
	}
	return nil, fmt.Errorf("%w: %d bytes of kind %d", ErrMalformed, len(message), kind)
}

func (m Open) check() error {
	switch {
	case len(m.Name) > MaxName:
		return fmt.Errorf("the name of a door has %d bytes, the maximum is %d", len(m.Name), MaxName)
	case len(m.Request) > MaxName:
		return fmt.Errorf("the id of a request has %d bytes, the maximum is %d", len(m.Request), MaxName)
	case m.Placeholder != "" && (len(m.Placeholder) < MinPlaceholder || len(m.Placeholder) > MaxName):
		return fmt.Errorf("the placeholder of a door has %d bytes, must have %d to %d", len(m.Placeholder), MinPlaceholder, MaxName)
	case len(m.Ask) > MaxAsk:
		return fmt.Errorf("the requested network access has %d bytes, the maximum is %d", len(m.Ask), MaxAsk)
	}
	return nil
}

func read[T Message](body []byte) (Message, error) {
	var m T
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	// encoding/json accepts repeated keys, keys in another case and unknown ones; none of them survives this.
	if again, err := json.Marshal(m); err != nil || !bytes.Equal(again, body) {
		return nil, ErrMalformed
	}
	return m, nil
}

const replyHead = 1 + 8

// Encode returns the message. It cuts a text that is longer than MaxText.
func (r Reply) Encode() []byte {
	head := binary.LittleEndian.AppendUint64([]byte{byte(r.Kind)}, r.Door)
	return append(head, r.Text[:min(len(r.Text), MaxText)]...)
}

// ReadReply decodes a reply. Its text is any bytes.
func ReadReply(message []byte) (Reply, error) {
	kind := KindOf(message)
	if kind != KindOpened && kind != KindReported || len(message) < replyHead || len(message) > replyHead+MaxText {
		return Reply{}, ErrMalformed
	}
	return Reply{kind, binary.LittleEndian.Uint64(message[1:]), string(message[replyHead:])}, nil
}
