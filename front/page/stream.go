package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"corral/internal/gate"
)

const (
	// maxStreams is the maximum number of streams of events, and maxStreamsEach that of a principal: tabs of a few people.
	maxStreams     = 64
	maxStreamsEach = 8
	// beatInterval is the interval of comments on a silent stream, so that one whose client has gone is noticed.
	beatInterval = 15 * time.Second
)

// counts are the open streams. The zero value is ready to use.
type counts struct {
	mu   sync.Mutex
	all  int            // guarded by mu
	each map[string]int // guarded by mu: by principal
}

// enter counts a stream of a principal, unless there are too many.
func (c *counts) enter(principal string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all >= maxStreams || c.each[principal] >= maxStreamsEach {
		return false
	}
	if c.each == nil {
		c.each = map[string]int{}
	}
	c.all++
	c.each[principal]++
	return true
}

func (c *counts) leave(principal string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.each[principal]--; c.each[principal] == 0 {
		delete(c.each, principal)
	}
}

// A stream is a response of server-sent events (HTML, 9.2). It has no buffer of its own: a send ends when the client has read, or fails.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	ctx     context.Context
	stays   func() bool // the visitor may still see what the stream sends
	ticks   *time.Ticker
	sent    time.Time
}

// streaming returns a handler for requests for streams of people who have logged in. A stream does not prolong their stay: a tab that
// nobody looks at does not keep them logged in.
func (s *Server) streaming(h func(st *stream, r *http.Request, v *visitor)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, ok := s.enter(w, r)
		if !ok {
			return
		}
		if !s.counts.enter(v.by.Principal) {
			busy(w, "too many pages are open: close one")
			return
		}
		defer s.counts.leave(v.by.Principal)
		st := &stream{
			w: w, control: http.NewResponseController(w), ctx: r.Context(), ticks: time.NewTicker(gate.CheckInterval),
			stays: func() bool { return s.stays(v) },
		}
		defer st.ticks.Stop()
		h(st, r, v)
	}
}

// send sends an event. An error means that the client has gone or does not read.
func (st *stream) send(event string, value any) error {
	data, err := json.Marshal(value) // has no line break
	if err != nil {
		return err
	}
	return st.write(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", event, data))
}

func (st *stream) write(data []byte) error {
	_ = st.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // not every ResponseWriter supports it
	if st.sent.IsZero() {
		st.w.Header().Set("Content-Type", "text/event-stream")
	}
	st.sent = time.Now()
	if _, err := st.w.Write(data); err != nil {
		return err
	}
	return st.control.Flush()
}

// wait waits until there is a value in news, or it is closed. It returns false if the stream must end.
func (st *stream) wait(news <-chan struct{}) bool {
	for {
		select {
		case <-news:
			return st.allowed()
		case <-st.ctx.Done():
			return false
		case <-st.ticks.C:
			if !st.allowed() {
				return false
			}
			if time.Since(st.sent) >= beatInterval && st.write([]byte(": beat\n\n")) != nil {
				return false
			}
		}
	}
}

// allowed reports whether the stream may go on. Otherwise it says so to the page.
func (st *stream) allowed() bool {
	if st.stays() {
		return true
	}
	_ = st.send("end", map[string]string{"error": "not logged in"}) // the stream ends anyway
	return false
}
