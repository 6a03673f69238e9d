package wire

// Connect requests a connection to a TCP port of the processes in a session. The reply is a Connected, which has no body
// and comes with a socket, or a Result with the refusal. The connection of that socket may not be complete.
type Connect struct {
	IPv6 bool   // to ::1, otherwise to 127.0.0.1
	Port uint16 // not 0
	ID   string // of the session, maximum MaxName
}

func (*Connect) op() Op { return OpConnect }

func (m *Connect) fields(c *coder) {
	c.flags(&m.IPv6)
	c.u16(&m.Port)
	c.text(MaxName, &m.ID)
	c.check(m.Port != 0)
}

// Ports asks at which TCP ports the processes in a session listen. The reply is a PortList, or a Result with the refusal.
type Ports struct{ ID string } // maximum MaxName

func (*Ports) op() Op { return OpPorts }

func (m *Ports) fields(c *coder) {
	c.text(MaxName, &m.ID)
}

// A PortList is the answer to Ports.
type PortList struct {
	Ports []uint16 // in ascending order, maximum MaxPorts
	More  bool     // there may be others
}

// MaxPorts is the maximum number of ports in a PortList.
const MaxPorts = 64

func (*PortList) op() Op { return OpPortList }

func (m *PortList) fields(c *coder) {
	c.flags(&m.More)
	n := uint8(min(len(m.Ports), MaxPorts))
	c.u8(&n)
	c.check(n <= MaxPorts)
	if c.reading && !c.bad && n > 0 {
		m.Ports = make([]uint16, n)
	}
	for i := range m.Ports[:min(len(m.Ports), MaxPorts)] {
		c.u16(&m.Ports[i])
	}
}
