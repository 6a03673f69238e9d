package artifact

import (
	"bytes"
	"fmt"
)

const (
	// small is the maximum size of a stream that is kept in memory; a longer one goes to a file.
	small = 64 << 10
	// tailSize is how much of the end of a truncated stream is kept.
	tailSize = 1 << 20
	// aligning is how far from a cut a newline is searched for, so that whole lines are left out.
	aligning = 64 << 10
	// markerRoom is above the length of any marker.
	markerRoom = 128
)

// A gap describes the part of a stream that was left out, for its manifest.
type gap struct {
	Offset int64 `json:"offset"` // of the marker, in the stored stream
	Marker int64 `json:"marker"` // length of the marker in bytes
	Bytes  int64 `json:"bytes"`  // number of bytes left out
	Lines  int64 `json:"lines"`  // number of newlines left out
}

// A spool stores one stream within bounds: its head and, if it is too long, its end.
type spool struct {
	hashers *gzipHasherPool
	file    func() (fdWriter, error) // destination of the stream; called when it is no longer small
	limit   int64                    // maximum number of bytes stored
	owner   []byte                   // mark for the header

	small  []byte
	work   *worker // nil while small
	stored int64
	line   bool // the stored part ends within a line

	full     bool // the head is complete
	ring     []byte
	after    int64 // bytes after the head
	newlines int64 // newlines after the head
	err      error
}

func (s *spool) tail() int { return int(min(tailSize, s.limit/2)) }

// ringSize is large enough to store a stream of limit bytes completely, wherever its head was cut.
func (s *spool) ringSize() int { return s.tail() + aligning + markerRoom }

// write appends p, without keeping a reference to it.
func (s *spool) write(p []byte) {
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
	s.after += int64(len(p))
	s.keep(p)
}

// keep writes p to the ring.
func (s *spool) keep(p []byte) {
	size := s.ringSize()
	if s.ring == nil {
		s.ring = make([]byte, size)
	}
	at := int((s.after - int64(len(p))) % int64(size))
	if skip := len(p) - size; skip > 0 {
		at = (at + skip) % size
		p = p[skip:]
	}
	n := copy(s.ring[at:], p)
	copy(s.ring, p[n:])
}

// last returns the last n bytes written.
func (s *spool) last(n int64) []byte {
	size := int64(len(s.ring))
	from, to := (s.after-n)%max(size, 1), s.after%max(size, 1)
	if n == 0 || from < to {
		return s.ring[from:to]
	}
	return append(append(make([]byte, 0, n), s.ring[from:]...), s.ring[:to]...)
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
		f, err := s.file()
		if err != nil {
			s.err = err
		} else {
			s.work = newWorker(s.hashers, f, s.owner)
			s.work.write(s.small)
		}
		s.small = nil
	}
	if s.err == nil {
		s.work.write(p)
	}
}

// truncated reports whether part of the stream is or will be left out.
func (s *spool) truncated() bool { return s.stored+s.after > s.limit && s.full }

// end stores the end of the stream, and returns the gap before it, or nil if nothing was left out.
func (s *spool) end() *gap {
	defer func() { s.ring = nil }()
	if !s.truncated() {
		s.put(s.last(s.after))
		return nil
	}
	tail := s.last(int64(s.tail()))
	if nl := bytes.IndexByte(tail[:min(len(tail), aligning)], '\n'); nl >= 0 && nl+1 < len(tail) {
		tail = tail[nl+1:]
	}
	g := gap{
		Offset: s.stored, Bytes: s.after - int64(len(tail)),
		Lines: s.newlines - int64(bytes.Count(tail, []byte{'\n'})),
	}
	marker := leftOut(g.Bytes) + "\n"
	if s.line {
		marker = "\n" + marker
	}
	g.Marker = int64(len(marker))
	s.put([]byte(marker))
	s.put(tail)
	return &g
}

// leftOut returns the marker line for n bytes that are not stored.
func leftOut(n int64) string { return fmt.Sprintf("... (%d bytes left out) ...", n) }

// finish returns the size and hash of the stream and, if it is small, its compressed form. A large stream is in its
// file; nil is returned for it.
func (s *spool) finish() (sealed, []byte, error) {
	if s.err != nil {
		return sealed{}, nil, s.err
	}
	if w := s.work; w != nil {
		s.work = nil
		seal, err := w.close()
		return seal, nil, err
	}
	b := bytes.NewBuffer(make([]byte, 0, 128+len(s.small)/2))
	seal, err := s.hashers.short(b, s.owner, s.small)
	return seal, b.Bytes(), err
}

// discard ends the spool without a result.
func (s *spool) discard() {
	if s.work != nil {
		_, _ = s.work.close()
		s.work = nil
	}
	s.small, s.ring = nil, nil
}

// A worker compresses, hashes and writes a stream in its own goroutine. It has few buffers, so a faster writer
// blocks.
type worker struct {
	in, free chan []byte
	cur      []byte
	done     chan struct{}
	// Used by the worker's goroutine only, until done is closed.
	hashers *gzipHasherPool
	file    fdWriter
	owner   []byte
	seal    sealed
	err     error
}

const (
	chunk  = 64 << 10
	chunks = 4
)

func newWorker(p *gzipHasherPool, f fdWriter, owner []byte) *worker {
	w := &worker{
		in: make(chan []byte, chunks), free: make(chan []byte, chunks), done: make(chan struct{}),
		hashers: p, file: f, owner: owner,
	}
	for range chunks {
		w.free <- nil
	}
	go w.run()
	return w
}

func (w *worker) write(p []byte) {
	for len(p) > 0 {
		if w.cur == nil {
			if w.cur = <-w.free; w.cur == nil {
				w.cur = make([]byte, 0, chunk)
			}
		}
		n := min(len(p), cap(w.cur)-len(w.cur))
		w.cur = append(w.cur, p[:n]...)
		p = p[n:]
		if len(w.cur) == cap(w.cur) {
			w.in <- w.cur
			w.cur = nil
		}
	}
}

func (w *worker) run() {
	defer close(w.done)
	c := w.hashers.to(w.file, w.owner)
	for b := range w.in {
		if w.err == nil { // after an error, input is dropped: the job must not block
			_, w.err = c.Write(b)
		}
		w.free <- b[:0]
	}
	seal, err := w.hashers.close(c)
	if w.err == nil {
		w.seal, w.err = seal, err
	}
}

// close ends the stream and waits for the worker.
func (w *worker) close() (sealed, error) {
	if len(w.cur) > 0 {
		w.in <- w.cur
	}
	close(w.in)
	<-w.done
	return w.seal, w.err
}
