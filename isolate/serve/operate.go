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
		return c.send(tag, answerOf(err))
	}
	return sendList(c, tag, notes, func(text *string) wire.Message { return &wire.Note{Text: *text} })
}

func (c *client) drain(tag uint32, body []byte) error {
	m, err := wire.Decode[wire.Drain](body)
	if err != nil {
		return err
	}
	return c.send(tag, answerOf(c.s.Jobs.Drain(c.peer, !m.Undo)))
}

func (c *client) kill(tag uint32, body []byte) error {
	m, err := wire.Decode[wire.Kill](body)
	if err != nil {
		return err
	}
	return c.send(tag, answerOf(c.s.Jobs.Kill(c.peer, m.Job)))
}
