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
