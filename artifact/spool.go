package artifact

import (
	"bytes"
	"fmt"
)

const (
	// small is how much of a stream is kept in memory before a file is worth it.
	small = 64 << 10
	// tailSize is how much of the end of a stream is kept when not all is.
	tailSize = 1 << 20
	// aligning is how far from a cut a newline is looked for, so that whole lines are left out.
	aligning = 64 << 10
	// markerRoom is more than a marker has.
	markerRoom = 128
)

// A gap is what was left out of a stream, as its manifest says it.
type gap struct {
	Offset int64 `json:"offset"` // in what is stored, where a marker of
	Marker int64 `json:"marker"` // so many bytes stands for
	Bytes  int64 `json:"bytes"`  // so many
	Lines  int64 `json:"lines"`  // with so many newlines
}

// A spool stores one stream within bounds: its head and, if it was longer, the end of it.
type spool struct {
	hashers *gzipHasherPool
	file    func() (fdWriter, error) // that the stream goes to; called when it is no longer small
	limit   int64                    // bytes to store
	owner   []byte                   // goes with what is stored

	small  []byte
	work   *worker // nil while small
	stored int64
	line   bool // what is stored ends within a line

	full     bool // the head is
	ring     []byte
	after    int64 // bytes that came after the head
	newlines int64 // of these
	err      error
}

func (s *spool) tail() int { return int(min(tailSize, s.limit/2)) }

// ringSize is such that a stream of limit bytes is stored whole, wherever its head was cut.
func (s *spool) ringSize() int { return s.tail() + aligning + markerRoom }

// write takes what comes next; p is the caller's again.
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

// keep puts p into the ring.
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

// last returns the last n bytes that came.
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

// truncated says whether not all is or will be stored.
func (s *spool) truncated() bool { return s.stored+s.after > s.limit && s.full }

// end stores what is kept of the end, and returns what was left out before it: nil if nothing was.
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

// leftOut is the line that stands for what is not stored.
func leftOut(n int64) string { return fmt.Sprintf("... (%d bytes left out) ...", n) }

// finish returns what the manifest says of the stream and, when it is small, its compressed form; a large one is in its
// file, and there is nil.
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

// A worker compresses, hashes and writes a stream, past who reads it. Its buffers are few: who is faster waits.
type worker struct {
	in, free chan []byte
	cur      []byte
	done     chan struct{}
	// Of the worker, until done:
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
		if w.err == nil { // else what comes is dropped: a job is not held up
			_, w.err = c.Write(b)
		}
		w.free <- b[:0]
	}
	seal, err := w.hashers.close(c)
	if w.err == nil {
		w.seal, w.err = seal, err
	}
}

// close ends the stream.
func (w *worker) close() (sealed, error) {
	if len(w.cur) > 0 {
		w.in <- w.cur
	}
	close(w.in)
	<-w.done
	return w.seal, w.err
}
