package isolate

import (
	"os"

	"corral/isolate/wire"
)

// connect replies with a socket that is connected to a port of a session. What passes through it is not read here.
func (c *connection) connect(tag uint32, m wire.Connect) error {
	return c.background(tag, c.opening, func() (wire.Message, error) {
		socket, err := c.s.sessions.Connect(c.peer, m)
		if err != nil {
			return nil, err
		}
		// The client can have the last close of the socket wait for the job (SO_LINGER), and may have closed it already.
		defer c.giveUp([]*os.File{socket})
		c.answer(tag, wire.Empty(wire.OpConnected), socket)
		return nil, nil
	})
}

// ports replies with the ports at which the processes of a session listen.
func (c *connection) ports(tag uint32, m wire.Ports) error {
	return c.background(tag, c.opening, func() (wire.Message, error) {
		list, err := c.s.sessions.Ports(c.peer, m.ID)
		return &list, err
	})
}
