package jsonrpc

import (
	"context"
	"errors"
	"io"
	"iter"
	"testing"
)

// lines returns an outbox that writes lines to w.
func lines(w io.Writer) *Outbox {
	return NewOutbox(func(i *Item) error {
		_, err := w.Write(append(i.Text, '\n'))
		return err
	})
}

// TestSendKeepsOrder: Send writes directly unless another goroutine is writing; then it queues, in order.
func TestSendKeepsOrder(t *testing.T) {
	r, w := io.Pipe()
	o := lines(w)
	go o.Run()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		o.Send(Item{Text: []byte("one")})
	}()
	buffer := make([]byte, 1)
	if _, err := io.ReadFull(r, buffer); err != nil { // the first message is being written
		t.Fatal(err)
	}
	o.Send(Item{Text: []byte("two")})
	o.Put(Item{Text: []byte("three")})
	o.Close()
	want := "ne\ntwo\nthree\n"
	rest := make([]byte, len(want))
	if _, err := io.ReadFull(r, rest); err != nil || string(rest) != want {
		t.Errorf("%q, %v", rest, err)
	}
	<-sent
	<-o.Done()
	if o.Send(Item{Text: []byte("late")}); o.Waiting() != 0 {
		t.Errorf("%d bytes queued", o.Waiting())
	}
}

// TestOutboxFails: after a failed write, what waits and what comes is settled once each, nothing counts, and nobody waits.
func TestOutboxFails(t *testing.T) {
	gone := errors.New("gone")
	o := NewOutbox(func(*Item) error { return gone })
	settled := 0
	item := Item{Text: []byte("text"), Size: 100, Sent: func() { settled++ }, Build: func() iter.Seq[[]byte] { return nil }}
	o.Put(item)
	o.Put(item)
	if n := o.Waiting(); n != 208 {
		t.Errorf("%d bytes wait", n)
	}
	o.Run()
	o.Put(item)
	o.Send(item)
	if o.PutAfter(0, item) || o.WaitBelow(t.Context(), 0) || settled != 5 || o.Waiting() != 0 || !errors.Is(o.Failure(), gone) {
		t.Errorf("%d settled, %d bytes wait, %v", settled, o.Waiting(), o.Failure())
	}
}

// TestOutboxBounds: what may be dropped is, what must wait does, and a wait ends with its context.
func TestOutboxBounds(t *testing.T) {
	o := lines(io.Discard)
	o.Replace = func(i Item, waiting int) Item {
		if waiting > 5 {
			i.Text = []byte("short")
		}
		return i
	}
	o.Put(Item{Text: []byte("123456")})
	o.PutBelow(5, Item{Text: []byte("dropped")})
	o.Put(Item{Text: []byte("replaced")})
	if n := o.Waiting(); n != 6+5 {
		t.Errorf("%d bytes wait", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan bool)
	go func() { waited <- o.WaitBelow(ctx, 0) }()
	cancel()
	if <-waited {
		t.Error("the wait has ended without room")
	}
	go o.Run()
	if !o.PutAfter(0, Item{Text: append(o.Buffer(), "last"...), Pooled: true}) || !o.WaitBelow(t.Context(), 0) || o.Buffer() == nil {
		t.Error("no room, or no buffer was kept")
	}
	o.Close()
	<-o.Done()
}
