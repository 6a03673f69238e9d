package wire

// Connect requests a connection to a TCP port of the processes in a session. The reply is a Connected, which has no body
// and comes with a socket, or a Result with the refusal. The connection of that socket may not be complete.
type Connect struct {
	IPv6 bool   // to ::1, otherwise to 127.0.0.1
	Port uint16 // not 0
	ID   string // of the session, maximum MaxName
}

// Append encodes m as a message with tag.
func (m Connect) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpConnect, tag)
	e.u8(bit(m.IPv6, 1))
	e.u16(m.Port)
	e.text(m.ID, MaxName)
	return e.b
}

// ReadConnect decodes the body of a Connect.
func ReadConnect(body []byte) (Connect, error) {
	d := decoder{b: body}
	v6 := d.u8()
	m := Connect{IPv6: v6 == 1, Port: d.u16(), ID: d.text(MaxName)}
	d.bad = d.bad || v6 > 1 || m.Port == 0
	return m, d.done()
}

// Ports asks at which TCP ports the processes in a session listen. The reply is a PortList, or a Result with the refusal.
type Ports struct{ ID string } // maximum MaxName

// Append encodes m as a message with tag.
func (m Ports) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpPorts, tag)
	e.text(m.ID, MaxName)
	return e.b
}

// ReadPorts decodes the body of a Ports.
func ReadPorts(body []byte) (Ports, error) {
	d := decoder{b: body}
	m := Ports{d.text(MaxName)}
	return m, d.done()
}

// A PortList is the answer to Ports.
type PortList struct {
	Ports []uint16 // in ascending order, maximum MaxPorts
	More  bool     // there may be others
}

// MaxPorts is the maximum number of ports in a PortList.
const MaxPorts = 64

// Append encodes m as the answer to tag.
func (m PortList) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpPortList, tag)
	e.u8(bit(m.More, 1))
	ports := m.Ports[:min(len(m.Ports), MaxPorts)]
	e.u8(uint8(len(ports)))
	for _, p := range ports {
		e.u16(p)
	}
	return e.b
}

// ReadPortList decodes the body of a PortList.
func ReadPortList(body []byte) (PortList, error) {
	d := decoder{b: body}
	more, n := d.u8(), d.u8()
	d.bad = d.bad || more > 1 || n > MaxPorts
	m := PortList{More: more == 1}
	for range n {
		if d.bad {
			break
		}
		m.Ports = append(m.Ports, d.u16())
	}
	return m, d.done()
}
