// Package wire is the protocol between front-ends and the supervisor.
//
// Messages are datagrams on a SOCK_SEQPACKET unix socket, at most MaxMessage bytes, with descriptors as SCM_RIGHTS. Each
// operation has one type with fields in a fixed order, little endian; strings are length-limited bytes that are not
// parsed. The decoders are the only code of the supervisor that reads data written by a client: they are fuzzed, they
// allocate no more than the message's size, and a message that does not match its layout exactly is an error.
//
// A program's arguments and environment are not part of a message: they are passed in a sealed memfd (see NewPayload),
// which the supervisor does not read.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"corral/job"
)

// Version is the first field of every message; both sides must be of one release. A new limit changes it. layout rises with any other
// change of a message.
const (
	Version = layout<<8 | job.NumLimits
	layout  = 10
)

// Maximum sizes of a message's parts, in bytes.
const (
	MaxMessage   = 64 << 10
	MaxPath      = 4095 // PATH_MAX less the final NUL
	MaxName      = 32
	MaxText      = 2048
	MaxSensitive = 32 << 10
	MaxNetwork   = 4 << 10 // of the network access that is asked for
	MaxReached   = 8 << 10 // of what a job reached
	MaxMounts    = 4 << 10 // of the places of other file systems below a repository
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

type encoder struct{ b []byte }

func (e *encoder) u8(v uint8)   { e.b = append(e.b, v) }
func (e *encoder) u16(v uint16) { e.b = binary.LittleEndian.AppendUint16(e.b, v) }
func (e *encoder) u32(v uint32) { e.b = binary.LittleEndian.AppendUint32(e.b, v) }
func (e *encoder) i64(v int64)  { e.b = binary.LittleEndian.AppendUint64(e.b, uint64(v)) }

// text appends at most limit bytes of s and cuts the rest: that happens to the supervisor's own messages only, as
// requests are validated before.
func (e *encoder) text(s string, limit int) {
	if len(s) > limit {
		s = s[:limit]
	}
	e.u16(uint16(len(s)))
	e.b = append(e.b, s...)
}

func (e *encoder) header(op Op, tag uint32) {
	e.u16(Version)
	e.u16(uint16(op))
	e.u32(tag)
}

type decoder struct {
	b     []byte
	texts string // copy of b from the first text on; all texts are substrings of it, which saves allocations
	bad   bool
}

func (d *decoder) take(n int) []byte {
	if d.bad || n > len(d.b) {
		d.bad = true
		return make([]byte, 8)
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) u8() uint8   { return d.take(1)[0] }
func (d *decoder) u16() uint16 { return binary.LittleEndian.Uint16(d.take(2)) }
func (d *decoder) u32() uint32 { return binary.LittleEndian.Uint32(d.take(4)) }
func (d *decoder) i64() int64  { return int64(binary.LittleEndian.Uint64(d.take(8))) }

func (d *decoder) text(limit int) string {
	n := int(d.u16())
	if n > limit {
		d.bad = true
	}
	if d.bad || n == 0 {
		return ""
	}
	if d.texts == "" {
		d.texts = string(d.b)
	}
	behind := d.texts[len(d.texts)-len(d.b):]
	if d.take(n); d.bad {
		return ""
	}
	return behind[:n]
}

// done returns ErrMalformed if the message was too short, too long or out of range.
func (d *decoder) done() error {
	if d.bad || len(d.b) != 0 {
		return ErrMalformed
	}
	return nil
}

// ReadHeader decodes the header of message and returns the body.
func ReadHeader(message []byte) (Header, []byte, error) {
	d := decoder{b: message}
	version, op, tag := d.u16(), d.u16(), d.u32()
	switch {
	case d.bad:
		return Header{}, nil, ErrMalformed
	case version != Version:
		return Header{}, nil, fmt.Errorf("message of version %d, this is version %d: install corral and corrald of one release", version, Version)
	}
	return Header{Op: Op(op), Tag: tag}, d.b, nil
}

// Empty encodes a message without a body: Hello, List, Commands, Denials, Facts, Sessions, Images, Reload, Connected, End.
func Empty(op Op, tag uint32) []byte {
	e := encoder{b: make([]byte, 0, headerSize)}
	e.header(op, tag)
	return e.b
}
