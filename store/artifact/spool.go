package artifact

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
)

const (
	// small is the maximum size of a stream that is kept in memory; a longer one goes to a file.
	small = 64 << 10
	// tailSize is how much of the end of a truncated stream is kept.
	tailSize = 1 << 20
	// aligning is how far from a cut a newline is searched for, so that whole lines are left out.
	aligning = 64 << 10
	// markerRoom is above the length in bytes of any marker: a stored stream is at most this much longer than the limit.
	markerRoom = 128
)

// A Gap describes the part of a stream that was left out. The JSON names are those of an artifact's manifest.
type Gap struct {
	Offset int64 `json:"offset"` // of the marker, in the stored stream
	Marker int64 `json:"marker"` // length of the marker in bytes
	Bytes  int64 `json:"bytes"`  // number of bytes left out
	Lines  int64 `json:"lines"`  // number of newlines left out
}

// Line returns the line that stands for the gap, without its newline.
func (g *Gap) Line() string { return fmt.Sprintf("... (%d bytes left out) ...", g.Bytes) }

// A spool stores one stream of a job as a gzip file within bounds. It is not safe for concurrent use. It must be ended by Seal or
// Discard.
//
// If a stream is too long, its head and its end are stored, with a line in between that says how much was left out
// (Gap). Short streams stay in memory until they end. The file is one gzip member (RFC 1952), whose header may hold a mark.
// Memory is at most about 3 MiB per stream.
type spool struct {
	pool  *gzipPool
	limit int64  // maximum number of bytes stored of the stream, at least 1 KiB
	mark  []byte // subfields for the gzip header; nil stores none
	// file returns the destination of the stream, which the caller owns. It is called when there is something to write,
	// and may be called again.
	file func() (io.Writer, error)

	small  []byte
	work   *gzipHasher // nil while small
	stored int64
	line   bool // the stored part ends within a line

	full     bool  // the head is complete
	after    ring  // the end of what follows the head
	newlines int64 // newlines after the head
	err      error
}

func (s *spool) tail() int { return int(min(tailSize, s.limit/2)) }

// Write appends p, without keeping a reference to it. Seal reports errors.
func (s *spool) Write(p []byte) {
	if !s.full {
		room := s.limit - int64(s.tail()) - markerRoom - s.stored
		if int64(len(p)) <= room {
			s.put(p)
			return
		}
		head := p[:max(room, 0)]
		if nl := bytes.LastIndexByte(head[max(0, len(head)-aligning):], '\n'); nl >= 0 {
			head = head[:max(0, len(head)-aligning)+nl+1]
		}
		s.put(head)
		s.full = true
		p = p[len(head):]
	}
	s.newlines += int64(bytes.Count(p, []byte{'\n'}))
	if s.after.size == 0 {
		size := s.tail() + aligning + markerRoom // a stream of limit bytes is stored completely, wherever its head was cut
		s.after = ring{size: size, b: make([]byte, 0, size)}
	}
	s.after.write(p)
}

// put stores p.
func (s *spool) put(p []byte) {
	if len(p) == 0 {
		return
	}
	s.stored += int64(len(p))
	s.line = p[len(p)-1] != '\n'
	if s.work == nil && len(s.small)+len(p) <= small {
		s.small = append(s.small, p...)
		return
	}
	if s.work == nil && s.err == nil {
		var f io.Writer
		if f, s.err = s.file(); s.err == nil {
			s.work = s.pool.to(f, s.mark)
			_, s.err = s.work.Write(s.small)
		}
		s.small = nil
	}
	if s.err == nil { // after an error, output is dropped: the job must not block
		_, s.err = s.work.Write(p)
	}
}

// truncated reports whether part of the stream is or will be left out.
func (s *spool) truncated() bool { return s.stored+s.after.total > s.limit && s.full }

// end stores the end of the stream, and returns the gap before it, or nil if nothing was left out.
func (s *spool) end() *Gap {
	defer func() { s.after = ring{} }()
	if !s.truncated() {
		s.put(s.after.last(s.after.total))
		return nil
	}
	tail := s.after.last(int64(s.tail()))
	if nl := bytes.IndexByte(tail[:min(len(tail), aligning)], '\n'); nl >= 0 && nl+1 < len(tail) {
		tail = tail[nl+1:]
	}
	g := &Gap{
		Offset: s.stored, Bytes: s.after.total - int64(len(tail)),
		Lines: s.newlines - int64(bytes.Count(tail, []byte{'\n'})),
	}
	marker := g.Line() + "\n"
	if s.line {
		marker = "\n" + marker
	}
	g.Marker = int64(len(marker))
	s.put([]byte(marker))
	s.put(tail)
	return g
}

// sealed is the stored form of a stream.
type sealed struct {
	Bytes  int64 // of the stored stream, before compression
	SHA256 [sha256.Size]byte
	Gap    *Gap  // nil if nothing was left out
	Size   int64 // of its file, in bytes; -1 if not known: the caller has to look
}

// Seal ends the stream and returns what was stored.
func (s *spool) Seal() (sealed, error) {
	gap := s.end()
	sum, short, err := s.finish()
	r := sealed{Bytes: sum.bytes, SHA256: sum.sha, Gap: gap, Size: -1}
	if err != nil || short == nil {
		return r, err
	}
	f, err := s.file()
	if err == nil {
		_, err = f.Write(short)
	}
	r.Size = int64(len(short))
	return r, err
}

// finish returns the size and hash of the stream and, if it is small, its compressed form. A large stream is in its
// file; nil is returned for it.
func (s *spool) finish() (gzipSum, []byte, error) {
	if s.err != nil {
		return gzipSum{}, nil, s.err
	}
	if w := s.work; w != nil {
		s.work = nil
		seal, err := s.pool.close(w)
		return seal, nil, err
	}
	b := bytes.NewBuffer(make([]byte, 0, 128+len(s.small)/2))
	seal, err := s.pool.short(b, s.mark, s.small)
	return seal, b.Bytes(), err
}

// Discard ends the spool without a result. After Seal, or another Discard, it does nothing.
func (s *spool) Discard() {
	if s.work != nil {
		_, _ = s.pool.close(s.work)
		s.work = nil
	}
	s.small, s.after = nil, ring{}
}
