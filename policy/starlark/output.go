package starlark

import (
	"io"
	"time"
	"unicode/utf8"
)

// chunk is the number of bytes of output that are written at once.
const chunk = 32 << 10

// An outlet buffers what a script emits. One goroutine writes to it. Another one closes it, and must not wait for a
// reader that does not read.
type outlet struct {
	w    io.Writer
	turn chan struct{} // holds one token, which is needed to use buf and w
	buf  []byte
}

func newOutlet(w io.Writer) *outlet {
	o := &outlet{w: w, turn: make(chan struct{}, 1)}
	o.turn <- struct{}{}
	return o
}

// Write implements io.Writer. After Close it never returns.
func (o *outlet) Write(p []byte) (int, error) {
	<-o.turn
	defer func() { o.turn <- struct{}{} }()
	o.buf = append(o.buf, p...)
	if len(o.buf) < chunk {
		return len(p), nil
	}
	return len(p), o.flush()
}

// Flush writes the buffer.
func (o *outlet) Flush() error {
	<-o.turn
	defer func() { o.turn <- struct{}{} }()
	return o.flush()
}

// flush writes the buffer. The caller holds the token.
func (o *outlet) flush() error {
	if len(o.buf) == 0 {
		return nil
	}
	_, err := o.w.Write(o.buf)
	o.buf = o.buf[:0]
	return err
}

// Close writes the buffer, unless that takes longer than timeout. Nothing is written after it returns.
func (o *outlet) Close(timeout time.Duration) {
	done := make(chan struct{})
	go func() {
		<-o.turn // never returned
		_ = o.flush()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(timeout):
	}
}

// whole returns at most the first n bytes of s, without a partial character at the end.
func whole(s string, n int) string {
	if len(s) <= n {
		return s
	}
	end := n
	for end > 0 && n-end < utf8.UTFMax-1 && !utf8.RuneStart(s[end]) {
		end--
	}
	if !utf8.RuneStart(s[end]) { // not valid UTF-8 to begin with
		end = n
	}
	return s[:end]
}
