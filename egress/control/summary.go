package control

import (
	"encoding/json"
	"fmt"
)

// A Summary says what a door was used for.
type Summary struct {
	Connections int64    `json:"connections"` // that were allowed
	Denied      int64    `json:"denied"`      // connections and names
	BytesUp     int64    `json:"bytes_up"`    // from the job
	BytesDown   int64    `json:"bytes_down"`
	Lost        bool     `json:"lost,omitempty"`    // what a process counted that ended is not in it
	Denials     []Denial `json:"denials,omitempty"` // distinct, the first ones; at most MaxDenials
}

// A Denial is what a job could not reach.
type Denial struct {
	Name  string `json:"name"`
	Port  uint16 `json:"port,omitempty"` // 0: the name was looked up
	Why   string `json:"why"`
	Allow string `json:"allow,omitempty"` // the rule that would allow it
	Count int64  `json:"count"`
}

// Lost is the text of a Reported that nobody sent, because there was no process or it did not answer.
func Lost() string { return Summary{Lost: true}.Encode() }

// Encode returns the summary as text of a Reported. It leaves out the last denials if the text would exceed MaxText.
func (s Summary) Encode() string {
	s.Denials = s.Denials[:min(len(s.Denials), MaxDenials)]
	for {
		text, err := json.Marshal(s)
		if err == nil && len(text) <= MaxText {
			return string(text)
		}
		if len(s.Denials) == 0 {
			return "" // unreachable: numbers fit, and there is no type that JSON lacks
		}
		s.Denials = s.Denials[:len(s.Denials)-1]
	}
}

// ReadSummary decodes the text of a Reported. It is what a program says that reads what jobs send: numbers are not negative and
// lengths bounded, but any text may be in it.
func ReadSummary(text string) (Summary, error) {
	var s Summary
	if len(text) > MaxText {
		return s, fmt.Errorf("%w: a summary of %d bytes", ErrMalformed, len(text))
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return Summary{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if min(s.Connections, s.Denied, s.BytesUp, s.BytesDown) < 0 || len(s.Denials) > MaxDenials {
		return Summary{}, fmt.Errorf("%w: a summary outside its bounds", ErrMalformed)
	}
	for _, d := range s.Denials {
		if d.Count < 0 {
			return Summary{}, fmt.Errorf("%w: a summary outside its bounds", ErrMalformed)
		}
	}
	return s, nil
}
