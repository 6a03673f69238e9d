package mcp

import (
	"encoding/json"
	"math"
	"strings"
	"sync"
	"time"

	safe "corral/internal/text"
)

const (
	// progressGap is the least time between two notifications of one request. What comes sooner waits for the next, or
	// for the end: a tool may report as often as it likes.
	progressGap = 20 * time.Millisecond
	// maxProgress is how many bytes of a progress message are sent.
	maxProgress = 1 << 10
)

// A progress reports about one request, if its client asked for that. It never blocks, its numbers only rise, and
// nothing is sent after close.
type progress struct {
	token json.RawMessage // nil: the client did not ask
	send  func([]byte)    // must not block; it may drop

	mu     sync.Mutex
	last   float64   // guarded by mu
	sent   time.Time // guarded by mu: of the last notification; zero before the first
	next   []byte    // guarded by mu: what waits to be sent
	closed bool      // guarded by mu
}

// report implements Caller.Progress.
func (p *progress) report(value float64, text string) {
	if p.token == nil || math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || !p.sent.IsZero() && value <= p.last {
		return
	}
	p.last = value
	p.next = progressNote(p.token, value, text)
	if time.Since(p.sent) >= progressGap {
		p.flush()
	}
}

// flush sends what waits. The caller holds mu.
func (p *progress) flush() {
	if p.next == nil {
		return
	}
	p.sent = time.Now()
	p.send(p.next)
	p.next = nil
}

// close sends what waits, and makes it the last: the answer comes next.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flush()
	p.closed = true
}

func progressNote(token json.RawMessage, value float64, text string) []byte {
	return notificationOf("notifications/progress", struct {
		Token    json.RawMessage `json:"progressToken"`
		Progress float64         `json:"progress"`
		Message  string          `json:"message,omitempty"`
	}{token, value, strings.ToValidUTF8(safe.Cut(text, maxProgress), "")})
}
