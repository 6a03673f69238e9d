package audit

import "encoding/json"

// A checkpoint is a position with the jobs open at it. It avoids reading the whole audit log at each start.
type checkpoint struct {
	Position
	Open map[uint64]Who // by seq of the decided record
}

// Note updates the open jobs with a record.
func (c *checkpoint) Note(f fixedFields) {
	switch {
	case f.Event == Decided:
		c.Open[f.Seq] = Who{Instance: f.Instance, Job: f.Job}
	case f.Event.Closes():
		delete(c.Open, f.Of)
	}
}

// Encode returns the content of the checkpoint's file.
func (c *checkpoint) Encode() ([]byte, error) { return json.Marshal(c) }

// parseCheckpoint is the inverse of Encode.
func parseCheckpoint(b []byte) (checkpoint, bool) {
	c := checkpoint{}
	if json.Unmarshal(b, &c) != nil || c.File == 0 || c.Open == nil {
		return c, false
	}
	for _, who := range c.Open {
		if !IsName(who.Instance) || !IsName(who.Job) {
			return c, false
		}
	}
	return c, true
}
