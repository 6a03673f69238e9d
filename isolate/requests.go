package isolate

import (
	"context"
	"io"
	"os"

	"corral/isolate/wire"
)

func (c *client) hello(tag uint32) error {
	w := wire.Welcome{Instance: c.s.InstanceName()}
	if c.peer.Embedded {
		id := c.s.NobodyID()
		w.FrontUID, w.FrontGID = id, id
	}
	return c.conn.Send(w.Append(tag))
}

// list answers with the running jobs: a client's own, and for root all.
func (c *client) list(tag uint32) error {
	for _, e := range c.s.entries(c.peer) {
		if err := c.conn.Send(e.Append(tag)); err != nil {
			return err
		}
	}
	return c.conn.Send(wire.Empty(wire.OpEnd, tag))
}

func (c *client) facts(tag uint32) error {
	for _, f := range c.s.facts() {
		if err := c.conn.Send(f.Append(tag)); err != nil {
			return err
		}
	}
	return c.conn.Send(wire.Empty(wire.OpEnd, tag))
}

// maxClientDenials bounds the records that are being written for one connection: beyond, it is not read on.
const maxClientDenials = 64

// denied writes down what the front-end denied, beside the connection's other requests: the disk may take its time.
func (c *client) denied(ctx context.Context, tag uint32, body []byte) error {
	m, err := wire.ReadDenied(body)
	if err != nil {
		return err
	}
	select {
	case c.denials <- struct{}{}:
	case <-ctx.Done():
		return io.EOF
	}
	c.work.Go(func() {
		defer func() { <-c.denials }()
		c.answer(answerOf(c.s.denied(c.peer, m.Claim)).Append(tag))
	})
	return nil
}

// answer sends what another goroutine than the connection's own has to say. A client that does not take it is a client no
// more: the next answer would wait as long again, and so would the supervisor's end.
func (c *client) answer(message []byte, files ...*os.File) {
	if err := c.conn.Send(message, files...); err != nil {
		c.conn.Shutdown()
	}
}

// state answers with a user's state directory.
func (c *client) state(tag uint32, body []byte) error {
	m, err := wire.ReadState(body)
	if err != nil {
		return err
	}
	dir, err := c.stateFor(m.UID)
	if err != nil {
		return c.conn.Send(answerOf(err).Append(tag))
	}
	defer dir.Close()
	return c.conn.Send(wire.Answer{}.Append(tag), dir)
}

func answerOf(err error) wire.Answer {
	if err == nil {
		return wire.Answer{}
	}
	return wire.Answer{Error: err.Error()}
}
