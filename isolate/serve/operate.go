package serve

import "corral/isolate/wire"

// reload makes the supervisor read its configuration again, and replies with notes for the operator. It runs in the
// connection's own goroutine: a client has at most one reload under way.
func (c *client) reload(tag uint32, body []byte) error {
	if len(body) != 0 {
		return wire.ErrMalformed
	}
	notes, err := c.s.Jobs.Reload(c.peer)
	if err != nil {
		return c.conn.Send(answerOf(err).Append(tag))
	}
	for _, text := range notes {
		if err := c.conn.Send((&wire.Note{Text: text}).Append(tag)); err != nil {
			return err
		}
	}
	return c.conn.Send(wire.Empty(wire.OpEnd, tag))
}

func (c *client) drain(tag uint32, body []byte) error {
	m, err := wire.ReadDrain(body)
	if err != nil {
		return err
	}
	return c.conn.Send(answerOf(c.s.Jobs.Drain(c.peer, !m.Undo)).Append(tag))
}

func (c *client) kill(tag uint32, body []byte) error {
	m, err := wire.ReadKill(body)
	if err != nil {
		return err
	}
	return c.conn.Send(answerOf(c.s.Jobs.Kill(c.peer, m.Job)).Append(tag))
}
