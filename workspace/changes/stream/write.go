package stream

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// A Writer writes a stream. It keeps its first error, and returns it from each later call.
type Writer struct {
	w   *bufio.Writer
	buf []byte
	err error
}

// NewWriter returns a Writer and begins the stream. End must be called to flush it.
func NewWriter(w io.Writer) *Writer {
	s := &Writer{w: bufio.NewWriterSize(w, 64<<10)}
	_ = s.put(recVersion, []byte{version}) // put keeps the error
	return s
}

// Entry writes an entry.
func (w *Writer) Entry(e *Entry) error {
	b := w.buf[:0]
	b = append(b, byte(slices.Index(kinds, e.Kind)), byte(slices.Index(types, e.Type)), byte(slices.Index(types, e.OldType)),
		byte(e.State), flag(e.Sensitive))
	b = binary.LittleEndian.AppendUint32(b, e.Mode)
	b = binary.LittleEndian.AppendUint32(b, e.OldMode)
	for _, n := range []int64{e.Size, e.OldSize, e.Below} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	for _, s := range []string{e.Path, e.Link, e.OldLink} {
		b = appendText(b, s)
	}
	return w.put(recEntry, b)
}

// Content begins one side of the last entry.
func (w *Writer) Content(c Content) error {
	return w.put(recContent, append(w.buf[:0], flag(c.New), byte(c.Left)))
}

// Data adds any number of bytes to the current side.
func (w *Writer) Data(p []byte) error {
	for len(p) > 0 && w.err == nil {
		n := min(len(p), MaxChunk)
		_ = w.put(recData, p[:n])
		p = p[n:]
	}
	return w.err
}

// Conflict writes a conflict.
func (w *Writer) Conflict(c Conflict) error {
	return w.put(recConflict, appendText(append(w.buf[:0], byte(c.Reason)), c.Path))
}

// Newer writes a path of the repository that is newer than the session's state of it.
func (w *Writer) Newer(n Newer) error {
	return w.put(recNewer, appendText(append(w.buf[:0], flag(n.Dir), flag(n.Touched)), n.Path))
}

// End writes the sum and flushes the stream.
func (w *Writer) End(s *Sum) error {
	b := w.buf[:0]
	for _, n := range []int64{s.Entries, s.Bytes, s.More, s.Conflicts, s.Applied, s.Skipped, s.Newer} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	b = append(append(b, flag(s.Incomplete)), s.Digest[:]...)
	b = appendText(b, s.Missed[:min(len(s.Missed), MaxPath)])
	_ = w.put(recSum, appendText(b, s.Failed[:min(len(s.Failed), MaxPath)]))
	if w.err == nil {
		w.err = w.w.Flush()
	}
	return w.err
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
}

func (w *Writer) put(kind byte, b []byte) error {
	w.buf = b[:0:cap(b)]
	if kind == recData {
		w.buf = nil // b belongs to the caller
	}
	switch {
	case w.err != nil:
	case len(b) > maxRecord:
		w.err = fmt.Errorf("a record of %d bytes is too long", len(b))
	default:
		var head [5]byte
		head[0] = kind
		binary.LittleEndian.PutUint32(head[1:], uint32(len(b)))
		_, _ = w.w.Write(head[:])
		_, w.err = w.w.Write(b) // bufio keeps the first error
	}
	return w.err
}
