package artifact

// A ring keeps the last bytes of a stream. Its memory grows with the stream up to its size.
type ring struct {
	size  int
	total int64  // bytes written
	b     []byte // once it is full, the byte at offset n of the stream is at n % size
}

// write appends p, without keeping a reference to it.
func (r *ring) write(p []byte) {
	r.total += int64(len(p))
	p = p[max(0, len(p)-r.size):]
	n := min(len(p), r.size-len(r.b))
	r.b = append(r.b, p[:n]...)
	if r.total <= int64(r.size) {
		return
	}
	n = copy(r.b[(r.total-int64(len(p)))%int64(r.size):], p)
	copy(r.b, p[n:])
}

// first returns the offset of the first byte that is kept.
func (r *ring) first() int64 { return r.total - int64(len(r.b)) }

// read copies what follows an offset, which must not be before first, into p, and returns the number of bytes.
func (r *ring) read(from int64, p []byte) int {
	p = p[:min(int64(len(p)), r.total-from)]
	if len(p) == 0 {
		return 0
	}
	n := copy(p, r.b[from%int64(r.size):])
	return n + copy(p[n:], r.b)
}

// last returns a copy of the last n bytes; at most those that are kept.
func (r *ring) last(n int64) []byte {
	p := make([]byte, min(n, int64(len(r.b))))
	r.read(r.total-int64(len(p)), p)
	return p
}
