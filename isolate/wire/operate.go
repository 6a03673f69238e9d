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
