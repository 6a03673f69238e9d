package server

import (
	"encoding/json"
	"math"
	"strings"
	"sync"
	"time"

	safe "corral/internal/text"
)

const (
	// progressGap is the minimum time between two notifications of one request. Earlier ones are held back until the next one
	// or the end, so that a tool may report as often as it likes.
	progressGap = 20 * time.Millisecond
	// maxProgress is the maximum length in bytes of a progress message; longer ones are cut.
	maxProgress = 1 << 10
)

// A progress sends the progress notifications of one request, if its client requested them. It never blocks, its values only
// increase, and it sends nothing after close.
type progress struct {
	token json.RawMessage // nil: the client requested no progress
	send  func([]byte)    // must not block; it may drop

	mu     sync.Mutex
	last   float64   // guarded by mu
	sent   time.Time // guarded by mu: of the last notification; zero before the first
	next   []byte    // guarded by mu: notification held back
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

// flush sends the notification held back. The caller holds mu.
func (p *progress) flush() {
	if p.next == nil {
		return
	}
	p.sent = time.Now()
	p.send(p.next)
	p.next = nil
}

// close sends the notification held back, and makes report a no-op, so that nothing follows the response.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flush()
	p.closed = true
}

func progressNote(token json.RawMessage, value float64, text string) []byte {
	return dialect.Notification("notifications/progress", struct {
		Token    json.RawMessage `json:"progressToken"`
		Progress float64         `json:"progress"`
		Message  string          `json:"message,omitempty"`
	}{token, value, strings.ToValidUTF8(safe.Cut(text, maxProgress), "")})
}
