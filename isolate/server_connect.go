package isolate

import (
	"os"

	"corral/isolate/wire"
)

// connect replies with a socket that is connected to a port of a session. What passes through it is not read here.
func (c *connection) connect(tag uint32, body []byte) error {
	m, err := wire.Decode[wire.Connect](body)
	if err != nil {
		return err
	}
	return c.startBackground(tag, func() {
		socket, err := c.s.sessions.Connect(c.peer, m)
		if err != nil {
			c.refuse(tag, err)
			return
		}
		// The client can have the last close of the socket wait for the job (SO_LINGER), and may have closed it already.
		defer c.giveUp([]*os.File{socket})
		c.answer(tag, wire.Empty(wire.OpConnected), socket)
	})
}

// ports replies with the ports at which the processes of a session listen.
func (c *connection) ports(tag uint32, body []byte) error {
	m, err := wire.Decode[wire.Ports](body)
	if err != nil {
		return err
	}
	return c.startBackground(tag, func() {
		list, err := c.s.sessions.Ports(c.peer, m.ID)
		if err != nil {
			c.refuse(tag, err)
			return
		}
		c.answer(tag, &list)
	})
}
