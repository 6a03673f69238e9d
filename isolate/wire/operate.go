package wire

// A Note is one sentence for the operator, part of the answer to Reload: notes and End, or an Answer with the error.
type Note struct{ Text string } // maximum MaxText bytes

// Append encodes n as part of the answer to tag.
func (n *Note) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpNote, tag)
	e.text(n.Text, MaxText)
	return e.b
}

// ReadNote decodes the body of a Note.
func ReadNote(body []byte) (Note, error) {
	d := decoder{b: body}
	n := Note{d.text(MaxText)}
	return n, d.done()
}

// Drain makes the supervisor refuse new jobs and sessions, or admit them again. The reply is an Answer.
type Drain struct{ Undo bool }

// Append encodes m as a message with tag.
func (m Drain) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpDrain, tag)
	e.u8(bit(m.Undo, 1))
	return e.b
}

// ReadDrain decodes the body of a Drain.
func ReadDrain(body []byte) (Drain, error) {
	d := decoder{b: body}
	undo := d.u8()
	d.bad = d.bad || undo > 1
	return Drain{undo == 1}, d.done()
}

// Kill requests the end of a job that another connection may have started. The reply is an Answer.
type Kill struct{ Job string } // maximum MaxName

// Append encodes m as a message with tag.
func (m Kill) Append(tag uint32) []byte {
	e := encoder{}
	e.header(OpKill, tag)
	e.text(m.Job, MaxName)
	return e.b
}

// ReadKill decodes the body of a Kill.
func ReadKill(body []byte) (Kill, error) {
	d := decoder{b: body}
	m := Kill{d.text(MaxName)}
	return m, d.done()
}
