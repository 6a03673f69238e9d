// Package wire is the protocol between front-ends and the supervisor.
//
// Messages are datagrams on a SOCK_SEQPACKET unix socket, at most MaxMessage bytes, with descriptors as SCM_RIGHTS. Each
// operation has one type with fields in a fixed order, little endian; strings are length-limited bytes that are not
// parsed. The decoder is the only code of the supervisor that reads data written by a client: it is fuzzed, it
// allocates no more than the message's size, and a message that does not match its layout exactly is an error.
//
// A program's arguments and environment are not part of a message: they are passed in a sealed memfd (see NewPayload),
// which the supervisor does not read.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"corral/job"
)

// Version is the first field of every message; both sides must be of one release. A new limit changes it. layout rises with any other
// change of a message.
const (
	Version = layout<<8 | job.NumLimits
	layout  = 13
)

// Maximum sizes of a message's parts, in bytes.
const (
	MaxMessage   = 64 << 10
	MaxPath      = 4095 // PATH_MAX less the final NUL
	MaxName      = 32
	MaxText      = 2048
	MaxSensitive = 32 << 10
	MaxNetwork   = 4 << 10  // of the network access that is asked for
	MaxReached   = 8 << 10  // of what a job reached
	MaxMounts    = 4 << 10  // of the places of other file systems below a repository
	MaxWorktrees = 20 << 10 // of the places of other worktrees
	// MaxDescriptors is the maximum number of descriptors of one message.
	MaxDescriptors = 6
)

// An Op is the kind of a message.
type Op uint16

// The operations. Hello to Ports are requests.
const (
	OpHello Op = iota + 1
	OpRun
	OpSignal
	OpList
	OpCommands
	OpDenials
	OpFacts
	OpDenied
	OpState
	OpOpen
	OpClose
	OpSessions
	OpImages
	OpRemoveImage
	OpReload
	OpDrain
	OpKill
	OpConnect
	OpPorts
	OpWelcome
	OpTerminal
	OpResult
	OpEntry
	OpDenial
	OpFact
	OpAnswer
	OpSession
	OpClosed
	OpImage
	OpNote
	OpConnected
	OpPortList
	OpEnd
)

// Header starts every message. Tag is the client's name for a job or a request; replies repeat it.
type Header struct {
	Op  Op
	Tag uint32
}

const headerSize = 8

// ErrMalformed is returned for a message that does not match its type's layout.
var ErrMalformed = errors.New("malformed message")

// A coder encodes a message, or decodes one: each message has one list of its fields for both.
type coder struct {
	b       []byte // encoded so far, or still to be decoded
	reading bool
	texts   string // copy of b from the first text on; all decoded texts are substrings of it, which saves allocations
	bad     bool
}

// A Message lists its fields in the order of their encoding, and checks them.
type Message interface {
	op() Op
	fields(c *coder)
}

// Fields are those of a message with a body, of type T.
type Fields[T any] interface {
	*T
	Message
}

// Encode returns a message with its header. A request is named tag, and each answer to it has the same tag.
func Encode(m Message, tag uint32) []byte {
	c := coder{b: appendHeader(make([]byte, 0, 512), m.op(), tag)}
	m.fields(&c)
	return c.b
}

// Decode returns the message whose body is given. It returns ErrMalformed if that is too short, too long or out of range.
func Decode[T any, M Fields[T]](body []byte) (m T, err error) {
	c := coder{b: body, reading: true}
	if M(&m).fields(&c); c.bad || len(c.b) != 0 {
		err = ErrMalformed
	}
	return m, err
}

// check makes a decoded message malformed unless ok.
func (c *coder) check(ok bool) { c.bad = c.bad || c.reading && !ok }

func (c *coder) take(n int) []byte {
	if c.bad || n > len(c.b) {
		c.bad = true
		return make([]byte, 8)
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

func (c *coder) u8(v *uint8) {
	if c.reading {
		*v = c.take(1)[0]
	} else {
		c.b = append(c.b, *v)
	}
}

func (c *coder) u16(v *uint16) {
	if c.reading {
		*v = binary.LittleEndian.Uint16(c.take(2))
	} else {
		c.b = binary.LittleEndian.AppendUint16(c.b, *v)
	}
}

func (c *coder) u32(v *uint32) {
	if c.reading {
		*v = binary.LittleEndian.Uint32(c.take(4))
	} else {
		c.b = binary.LittleEndian.AppendUint32(c.b, *v)
	}
}

func (c *coder) i64(list ...*int64) {
	for _, v := range list {
		if c.reading {
			*v = int64(binary.LittleEndian.Uint64(c.take(8)))
		} else {
			c.b = binary.LittleEndian.AppendUint64(c.b, uint64(*v))
		}
	}
}

// time is a time with nanoseconds since the Unix epoch.
func (c *coder) time(v *time.Time) {
	n := v.UnixNano()
	if c.i64(&n); c.reading {
		*v = time.Unix(0, n)
	}
}

// flags are the bits of one byte, the first one the lowest.
func (c *coder) flags(list ...*bool) {
	bits := uint8(0)
	for i, v := range list {
		if *v {
			bits |= 1 << i
		}
	}
	c.u8(&bits)
	if !c.reading { // what is encoded is not written to: others may read it
		return
	}
	c.check(bits>>len(list) == 0)
	for i, v := range list {
		*v = bits>>i&1 != 0
	}
}

// text are texts of at most limit bytes each. What is longer is cut when it is encoded: that happens to the supervisor's own messages only,
// as requests are validated before.
func (c *coder) text(limit int, list ...*string) {
	for _, s := range list {
		n := uint16(min(len(*s), limit))
		c.u16(&n)
		if !c.reading {
			c.b = append(c.b, (*s)[:n]...)
			continue
		}
		c.check(int(n) <= limit)
		*s = c.read(int(n))
	}
}

// read returns the next n bytes of a decoded message as a text.
func (c *coder) read(n int) string {
	if c.bad || n == 0 {
		return ""
	}
	if c.texts == "" {
		c.texts = string(c.b)
	}
	behind := c.texts[len(c.texts)-len(c.b):]
	if c.take(n); c.bad {
		return ""
	}
	return behind[:n]
}

func appendHeader(b []byte, op Op, tag uint32) []byte {
	b = binary.LittleEndian.AppendUint16(b, Version)
	b = binary.LittleEndian.AppendUint16(b, uint16(op))
	return binary.LittleEndian.AppendUint32(b, tag)
}

// ReadHeader decodes the header of message and returns the body.
func ReadHeader(message []byte) (Header, []byte, error) {
	if len(message) < headerSize {
		return Header{}, nil, ErrMalformed
	}
	if version := binary.LittleEndian.Uint16(message); version != Version {
		return Header{}, nil, fmt.Errorf("message of version %d, this is version %d: install corral and corrald of one release", version, Version)
	}
	h := Header{Op: Op(binary.LittleEndian.Uint16(message[2:])), Tag: binary.LittleEndian.Uint32(message[4:])}
	return h, message[headerSize:], nil
}

// Empty is a message without a body: Hello, List, Commands, Denials, Facts, Sessions, Images, Reload, Connected, End.
type Empty Op

func (m Empty) op() Op { return Op(m) }

func (Empty) fields(*coder) {}
