package starlark

import (
	"io"
	"time"
	"unicode/utf8"
)

// chunk is how many bytes of output are written at once.
const chunk = 32 << 10

// An outlet buffers what a script emits. It is written by one goroutine, and closed by another that cannot wait for a
// reader who does not read.
type outlet struct {
	w    io.Writer
	turn chan struct{} // has one token, of whoever may use buf and w
	buf  []byte
}

func newOutlet(w io.Writer) *outlet {
	o := &outlet{w: w, turn: make(chan struct{}, 1)}
	o.turn <- struct{}{}
	return o
}

// Write never returns when the outlet has been closed.
func (o *outlet) Write(p []byte) (int, error) {
	<-o.turn
	defer func() { o.turn <- struct{}{} }()
	o.buf = append(o.buf, p...)
	if len(o.buf) < chunk {
		return len(p), nil
	}
	return len(p), o.flush()
}

// Flush writes what is buffered.
func (o *outlet) Flush() error {
	<-o.turn
	defer func() { o.turn <- struct{}{} }()
	return o.flush()
}

// flush is for who has the token.
func (o *outlet) flush() error {
	if len(o.buf) == 0 {
		return nil
	}
	_, err := o.w.Write(o.buf)
	o.buf = o.buf[:0]
	return err
}

// Close writes what is buffered, if somebody takes it within patience. Nothing is written after it.
func (o *outlet) Close(patience time.Duration) {
	done := make(chan struct{})
	go func() {
		<-o.turn // and never back
		_ = o.flush()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience):
	}
}

// whole returns the first n bytes of s at most, without half of a character at the end if it begins there.
func whole(s string, n int) string {
	if len(s) <= n {
		return s
	}
	end := n
	for end > 0 && n-end < utf8.UTFMax-1 && !utf8.RuneStart(s[end]) {
		end--
	}
	if !utf8.RuneStart(s[end]) { // no UTF-8 in the first place
		end = n
	}
	return s[:end]
}
