package artifact

import "io"

// A worker compresses, hashes and writes a stream in its own goroutine. It has few buffers, so a faster writer
// blocks.
type worker struct {
	in, free chan []byte
	cur      []byte
	done     chan struct{}
	// Used by the worker's goroutine only, until done is closed.
	pool *gzipPool
	file io.Writer
	mark []byte
	seal gzipSum
	err  error
}

const (
	chunk  = 64 << 10
	chunks = 4
)

func newWorker(p *gzipPool, f io.Writer, mark []byte) *worker {
	w := &worker{
		in: make(chan []byte, chunks), free: make(chan []byte, chunks), done: make(chan struct{}),
		pool: p, file: f, mark: mark,
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
	c := w.pool.to(w.file, w.mark)
	for b := range w.in {
		if w.err == nil { // after an error, input is dropped: the job must not block
			_, w.err = c.Write(b)
		}
		w.free <- b[:0]
	}
	seal, err := w.pool.close(c)
	if w.err == nil {
		w.seal, w.err = seal, err
	}
}

// close ends the stream and waits for the worker.
func (w *worker) close() (gzipSum, error) {
	if len(w.cur) > 0 {
		w.in <- w.cur
	}
	close(w.in)
	<-w.done
	return w.seal, w.err
}
