package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"corral/isolate/wire"
	"corral/job"
)

// There is no dedicated goroutine that receives: one of those that wait for an answer does so for all. So a single job on
// a connection gets its answer without a switch between goroutines, which costs as much as one to ten system calls.

// A call is a request whose last answer has not been received.
type call struct {
	tag uint32

	// All fields below are guarded by Client.mu.
	answers []answer      // received and not yet returned
	turn    chan struct{} // wakes the waiting goroutine to check again; capacity 1, made on first use
	waiting bool          // a goroutine waits on turn
	dropped bool          // unregistered: no goroutine will wait any more
}

type answer struct {
	op    wire.Op
	body  []byte
	files []*os.File
}

// register creates a call. The caller must unregister it.
func (c *Client) register() (*call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil {
		return nil, c.lost()
	}
	c.next++
	k := &call{tag: c.next}
	c.pending[k.tag] = k
	return k, nil
}

// unregister ends a call and closes the files of answers that were not used.
func (c *Client) unregister(k *call) {
	c.mu.Lock()
	delete(c.pending, k.tag)
	left := k.answers
	k.answers, k.dropped = nil, true
	k.wake()
	c.wakeReceiver()
	c.mu.Unlock()
	for _, a := range left {
		wire.CloseAll(a.files)
	}
}

// send sends the message of a call.
func (c *Client) send(message []byte, files ...*os.File) error {
	err := c.conn.Send(message, files...)
	if err == nil {
		return nil
	}
	if c.conn.Ended() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fail(io.EOF)
		return c.lost()
	}
	return fmt.Errorf("%w: %w", job.ErrUnavailable, reason(err))
}

// exchange sends a request that has one answer, and returns that; the caller closes its files.
func (c *Client) exchange(ctx context.Context, request wire.Message, files ...*os.File) (answer, error) {
	k, err := c.register()
	if err != nil {
		return answer{}, err
	}
	defer c.unregister(k)
	if err := c.send(wire.Encode(request, k.tag), files...); err != nil {
		return answer{}, err
	}
	return c.awaitWithin(ctx, k)
}

// await returns the next answer to a call. It fails if the connection has ended or the call was unregistered.
func (c *Client) await(k *call) (answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case len(k.answers) > 0:
			a := k.answers[0]
			k.answers = k.answers[1:]
			return a, nil
		case c.failure != nil:
			return answer{}, c.lost()
		case k.dropped:
			return answer{}, context.Canceled
		case !c.receiving:
			c.receive(k)
		default:
			if k.turn == nil {
				k.turn = make(chan struct{}, 1)
			}
			k.waiting = true
			c.mu.Unlock()
			<-k.turn
			c.mu.Lock()
			k.waiting = false
		}
	}
}

// awaitWithin is like await, but returns when ctx ends; the caller then unregisters k, which closes later answers. The
// waiting goroutine ends with that or, if it is receiving, with the next message.
func (c *Client) awaitWithin(ctx context.Context, k *call) (answer, error) {
	if ctx.Done() == nil {
		return c.await(k)
	}
	type outcome struct {
		answer
		err error
	}
	done := make(chan outcome)
	go func() {
		a, err := c.await(k)
		select {
		case done <- outcome{a, err}:
		case <-ctx.Done(): // an answer that arrived at the same moment
			wire.CloseAll(a.files)
		}
	}()
	select {
	case <-ctx.Done():
		return answer{}, ctx.Err()
	case o := <-done:
		return o.answer, o.err
	}
}

// receive delivers answers to all calls until k has one, k is unregistered, or the connection ends. The caller holds mu,
// and no other goroutine receives.
func (c *Client) receive(k *call) {
	c.receiving = true
	for c.failure == nil && len(k.answers) == 0 && !k.dropped {
		c.mu.Unlock()
		tag, a, err := c.message()
		c.mu.Lock()
		if err != nil {
			c.fail(err)
		} else {
			c.deliver(tag, a)
		}
	}
	c.receiving = false
	c.wakeReceiver()
}

// message receives one message.
func (c *Client) message() (tag uint32, a answer, err error) {
	message, files, err := c.conn.Receive()
	if err != nil {
		return 0, answer{}, err
	}
	head, body, err := wire.ReadHeader(message)
	if err != nil {
		wire.CloseAll(files)
		return 0, answer{}, err
	}
	return head.Tag, answer{head.Op, append([]byte(nil), body...), files}, nil
}

// deliver adds an answer to its call, or closes its files if there is no such call. The caller holds mu.
func (c *Client) deliver(tag uint32, a answer) {
	k := c.pending[tag]
	if k == nil {
		wire.CloseAll(a.files)
		return
	}
	k.answers = append(k.answers, a)
	k.wake()
}

// wakeReceiver wakes one waiting goroutine to receive, if none does. The caller holds mu.
func (c *Client) wakeReceiver() {
	if c.receiving {
		return
	}
	for _, k := range c.pending {
		if k.waiting && len(k.answers) == 0 {
			k.wake()
			return
		}
	}
}

// fail records why the connection ended, and wakes all waiting goroutines. The caller holds mu.
func (c *Client) fail(err error) {
	if c.failure == nil {
		c.failure = err
	}
	for tag, k := range c.pending {
		delete(c.pending, tag)
		k.wake()
	}
}

// wake wakes the goroutine that waits for the call, if any. The caller holds Client.mu.
func (k *call) wake() {
	if k.turn == nil {
		return
	}
	select {
	case k.turn <- struct{}{}:
	default:
	}
}

// lost returns the error of the ended connection; the caller holds mu.
func (c *Client) lost() error {
	if errors.Is(c.failure, io.EOF) {
		return fmt.Errorf("%w: it closed the connection", job.ErrUnavailable)
	}
	return fmt.Errorf("%w: %w", job.ErrUnavailable, c.failure)
}

// Err returns nil while the connection is open, as far as known, and otherwise why it ended: that error wraps
// job.ErrUnavailable.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure == nil && !c.receiving && c.conn.Ended() { // a receiving goroutine notices the end by itself
		c.fail(io.EOF)
	}
	if c.failure == nil {
		return nil
	}
	return c.lost()
}
