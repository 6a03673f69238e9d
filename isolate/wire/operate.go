package wire

// A Note is one sentence for the operator, part of the answer to Reload: notes and End, or an Answer with the error.
type Note struct{ Text string } // maximum MaxText bytes

func (*Note) op() Op { return OpNote }

func (n *Note) fields(c *coder) {
	c.text(MaxText, &n.Text)
}

// Drain makes the supervisor refuse new jobs and sessions, or admit them again. The reply is an Answer.
type Drain struct{ Undo bool }

func (*Drain) op() Op { return OpDrain }

func (m *Drain) fields(c *coder) {
	c.flags(&m.Undo)
}

// Kill requests the end of a job that another connection may have started. The reply is an Answer.
type Kill struct{ Job string } // maximum MaxName

func (*Kill) op() Op { return OpKill }

func (m *Kill) fields(c *coder) {
	c.text(MaxName, &m.Job)
}
