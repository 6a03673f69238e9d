package starlark

import (
	"io"
	"time"
	"unicode/utf8"
)

// An outlet writes what a script emits, at once: the kernel can end the program at any time, for its memory, and what was emitted before
// is not lost then. One goroutine writes to it. Another one closes it, and must not wait for a reader that does not read.
type outlet struct {
	w    io.Writer
	turn chan struct{} // holds one token, which is needed to use w
	err  error         // of the first write that failed
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
	if len(p) == 0 {
		return 0, o.err
	}
	n, err := o.w.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// Failed returns the error of the first write that failed, nil if none did.
func (o *outlet) Failed() error {
	<-o.turn
	defer func() { o.turn <- struct{}{} }()
	return o.err
}

// Close waits for a write in progress, unless that takes longer than timeout. Nothing is written after it returns.
func (o *outlet) Close(timeout time.Duration) {
	done := make(chan struct{})
	go func() {
		<-o.turn // never returned
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
