package wire

// A Note is one sentence for the operator, part of the answer to Reload: notes and End, or an Answer with the error.
type Note struct{ Text string } // maximum MaxText bytes

func (n *Note) fields(c *coder) {
	c.text(MaxText, &n.Text)
}

// Append encodes n as part of the answer to tag.
func (n *Note) Append(tag uint32) []byte { return encode(n, OpNote, tag, 2+len(n.Text)) }

// ReadNote decodes the body of a Note.
func ReadNote(body []byte) (n Note, err error) {
	err = decode(body, &n)
	return n, err
}

// Drain makes the supervisor refuse new jobs and sessions, or admit them again. The reply is an Answer.
type Drain struct{ Undo bool }

func (m *Drain) fields(c *coder) {
	c.flags(&m.Undo)
}

// Append encodes m as a message with tag.
func (m Drain) Append(tag uint32) []byte { return encode(&m, OpDrain, tag, 1) }

// ReadDrain decodes the body of a Drain.
func ReadDrain(body []byte) (m Drain, err error) {
	err = decode(body, &m)
	return m, err
}

// Kill requests the end of a job that another connection may have started. The reply is an Answer.
type Kill struct{ Job string } // maximum MaxName

func (m *Kill) fields(c *coder) {
	c.text(MaxName, &m.Job)
}

// Append encodes m as a message with tag.
func (m Kill) Append(tag uint32) []byte { return encode(&m, OpKill, tag, 64) }

// ReadKill decodes the body of a Kill.
func ReadKill(body []byte) (m Kill, err error) {
	err = decode(body, &m)
	return m, err
}
