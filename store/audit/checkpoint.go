package audit

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

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

// A checkpoint's file consists of lines of numbers and names; the first and the last line show that it is complete.
const checkpointMagic = "corral audit checkpoint 1"

// Encode returns the content of the checkpoint's file.
func (c *checkpoint) Encode() []byte {
	b := fmt.Appendf(nil, checkpointMagic+"\nat %d %d %d %x\n", c.Seq, c.File, c.Size, c.Hash)
	for _, seq := range slices.Sorted(maps.Keys(c.Open)) {
		b = fmt.Appendf(b, "open %d %s %s\n", seq, c.Open[seq].Instance, c.Open[seq].Job)
	}
	return fmt.Appendf(b, "end %d\n", len(c.Open))
}

// parseCheckpoint accepts exactly the texts that Encode returns.
func parseCheckpoint(b []byte) (checkpoint, bool) {
	c := checkpoint{Open: map[uint64]Who{}}
	rows := bytes.Split(b, []byte("\n"))
	if len(rows) < 4 {
		return c, false
	}
	numbers := bytes.Fields(rows[1])
	if len(numbers) != 5 {
		return c, false
	}
	s := fieldScanner{b: numbers[4]}
	s.hash(&c.Hash)
	c.Seq, c.File, c.Size = parseNumber(numbers[1]), parseNumber(numbers[2]), int64(parseNumber(numbers[3]))
	for _, row := range rows[2 : len(rows)-2] {
		if f := bytes.Fields(row); len(f) == 4 && IsName(string(f[2])) && IsName(string(f[3])) {
			c.Open[parseNumber(f[1])] = Who{Instance: string(f[2]), Job: string(f[3])}
		}
	}
	return c, !s.bad && c.File > 0 && bytes.Equal(c.Encode(), b)
}

func parseNumber(b []byte) uint64 {
	n, err := strconv.ParseUint(string(b), 10, 63)
	if err != nil {
		return 0
	}
	return n
}
