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

// There is no goroutine that receives: of those who wait for an answer one does, for all of them. So a job alone on its
// connection is answered without a switch from one goroutine to another, which takes as long as a system call or ten.

// A call is a request that was not answered to its end.
type call struct {
	tag uint32

	// All are guarded by Client.mu.
	answers []answer      // that came and were not taken
	turn    chan struct{} // has room for one word: look again. It is made when somebody waits for it
	waiting bool          // somebody does
	dropped bool          // nobody will any more
}

type answer struct {
	op    wire.Op
	body  []byte
	files []*os.File
}

// register makes a new call.
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

// unregister ends a call. Answers that nobody took are closed.
func (c *Client) unregister(k *call) {
	c.mu.Lock()
	delete(c.pending, k.tag)
	left := k.answers
	k.answers, k.dropped = nil, true
	k.wake()
	c.elect()
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

// exchange sends a request that has one answer, and returns that; its files are the caller's to close.
func (c *Client) exchange(ctx context.Context, request func(tag uint32) []byte, files ...*os.File) (answer, error) {
	k, err := c.register()
	if err != nil {
		return answer{}, err
	}
	defer c.unregister(k)
	if err := c.send(request(k.tag), files...); err != nil {
		return answer{}, err
	}
	return c.awaitWithin(ctx, k)
}

// await returns the next answer to a call. Without one the connection has ended, or the call.
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

// awaitWithin is await until ctx ends; the caller unregisters k then, and what still comes is closed. The goroutine that waits
// ends with that or, if it receives, with the next message.
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
		case <-ctx.Done(): // what came at the same moment is closed
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

// receive passes answers to who waits for them until k has one, or is no call any more, or the connection ends. The caller
// holds mu, and nobody else receives.
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
	c.elect()
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

// deliver gives an answer to its call; one that nobody waits for is closed. The caller holds mu.
func (c *Client) deliver(tag uint32, a answer) {
	k := c.pending[tag]
	if k == nil {
		wire.CloseAll(a.files)
		return
	}
	k.answers = append(k.answers, a)
	k.wake()
}

// elect has somebody who waits receive, if nobody does. The caller holds mu.
func (c *Client) elect() {
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

// fail notes why the connection ended, and tells all who wait. The caller holds mu.
func (c *Client) fail(err error) {
	if c.failure == nil {
		c.failure = err
	}
	for tag, k := range c.pending {
		delete(c.pending, tag)
		k.wake()
	}
}

// wake wakes who waits for the call. The caller holds Client.mu.
func (k *call) wake() {
	if k.turn == nil {
		return
	}
	select {
	case k.turn <- struct{}{}:
	default:
	}
}

// lost says why the connection ended; the caller holds mu.
func (c *Client) lost() error {
	if errors.Is(c.failure, io.EOF) {
		return fmt.Errorf("%w: it closed the connection", job.ErrUnavailable)
	}
	return fmt.Errorf("%w: %w", job.ErrUnavailable, c.failure)
}

// Err is nil while the connection lasts, as far as is known, and says why it has ended afterwards: it wraps
// job.ErrUnavailable then.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure == nil && !c.receiving && c.conn.Ended() { // who receives learns it by itself
		c.fail(io.EOF)
	}
	if c.failure == nil {
		return nil
	}
	return c.lost()
}
