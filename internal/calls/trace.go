package calls

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

// A Trace is the place of a call in a trace (W3C Trace Context).
type Trace struct {
	ID      string // 32 hex digits, not all zero
	Parent  string // 16 hex digits: the span that the call is part of; "" if the trace begins here
	Sampled bool   // the parent is recorded and requests the same of its parts; true if the trace begins here
	State   string // tracestate as received, at most maxState bytes of ASCII; "" without a parent
}

// maxState is the number of bytes of a tracestate that must be propagated (Trace Context, 3.3.1.5). A longer one is
// dropped.
const maxState = 512

// TraceOf parses a traceparent and its tracestate. An invalid or missing traceparent starts a new trace (Trace Context,
// 3.2.2 and 4.3).
func TraceOf(parent, state string) Trace {
	t, ok := parseParent(parent)
	if !ok {
		return Trace{ID: RandomHex(16), Sampled: true}
	}
	if len(state) <= maxState && strings.Trim(state, ascii) == "" {
		t.State = state
	}
	return t
}

const (
	digits = "0123456789abcdef"
	ascii  = " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"
)

// parseParent parses VERSION-TRACE-PARENT-FLAGS. In later versions than 00, another dash and more fields may follow.
func parseParent(s string) (Trace, bool) {
	const whole = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if len(s) < whole || len(s) > maxState || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return Trace{}, false
	}
	version, id, parent, flags := s[:2], s[3:35], s[36:52], s[53:whole]
	switch {
	case strings.Trim(version+id+parent+flags, digits) != "", version == "ff":
		return Trace{}, false
	case strings.Trim(id, "0") == "", strings.Trim(parent, "0") == "":
		return Trace{}, false
	case version == "00" && len(s) > whole, len(s) > whole && s[whole] != '-':
		return Trace{}, false
	}
	low := strings.IndexByte(digits, flags[1])
	return Trace{ID: id, Parent: parent, Sampled: low&1 == 1}, true
}

// RandomHex returns n random bytes in hexadecimal.
func RandomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never returns an error, see crypto/rand
	return hex.EncodeToString(b)
}
