// Package wire is what a front-end and the supervisor say to each other.
//
// Messages are datagrams on a SOCK_SEQPACKET unix socket, at most MaxMessage bytes, with descriptors as SCM_RIGHTS. Each
// operation has one type with fields in a fixed order, little endian; strings are length-limited bytes that nobody
// parses. The decoders are the only code of the supervisor that reads what a client wrote: they are fuzzed, they
// allocate no more than the message, and what does not fit exactly is an error.
//
// A program's arguments and environment are not in a message: they pass by in a sealed memfd (see Payload), unread.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Version is the first field of every message; the two sides are of one release.
const Version = 4

// Limits of a message's parts, in bytes.
const (
	MaxMessage   = 64 << 10
	MaxPath      = 4095 // PATH_MAX less the final NUL
	MaxName      = 32
	MaxText      = 2048
	MaxSensitive = 32 << 10
	// MaxDescriptors is the most that come with one message.
	MaxDescriptors = 6
)

// An Op is the kind of a message.
type Op uint16

// The operations. Hello to RemoveImage are requests.
const (
	OpHello Op = iota + 1
	OpRun
	OpSignal
	OpList
	OpFacts
	OpDenied
	OpState
	OpOpen
	OpClose
	OpSessions
	OpImages
	OpRemoveImage
	OpWelcome
	OpTerminal
	OpResult
	OpEntry
	OpFact
	OpAnswer
	OpSession
	OpClosed
	OpImage
	OpEnd
)

// Header begins every message. Tag is the client's name for a job or a request; answers repeat it.
type Header struct {
	Op  Op
	Tag uint32
}

const headerSize = 8

// ErrMalformed is a message that is not of its type's shape.
var ErrMalformed = errors.New("malformed message")

type encoder struct{ b []byte }

func (e *encoder) u8(v uint8)   { e.b = append(e.b, v) }
func (e *encoder) u16(v uint16) { e.b = binary.LittleEndian.AppendUint16(e.b, v) }
func (e *encoder) u32(v uint32) { e.b = binary.LittleEndian.AppendUint32(e.b, v) }
func (e *encoder) i64(v int64)  { e.b = binary.LittleEndian.AppendUint64(e.b, uint64(v)) }

// text appends at most limit bytes of s: what is longer is cut, for messages of our own; requests are checked before.
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
	texts string // b as it was before the first text, of which all of them are parts
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

// done reports a message that was too short, too long or out of range.
func (d *decoder) done() error {
	if d.bad || len(d.b) != 0 {
		return ErrMalformed
	}
	return nil
}

// ReadHeader reads the header of message and returns the rest.
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

// Empty is a message that has nothing but its header: Hello, List, Facts, Sessions, Images, End.
func Empty(op Op, tag uint32) []byte {
	e := encoder{b: make([]byte, 0, headerSize)}
	e.header(op, tag)
	return e.b
}
