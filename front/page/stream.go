package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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

// mayStream reports whether as many streams may be open, of all and of one principal.
func mayStream(all, own int64) bool { return all <= maxStreams && own <= maxStreamsEach }

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
		if !s.streams.Take(v.by.Principal, 1, mayStream) {
			busy(w, "too many pages are open: close one")
			return
		}
		defer s.streams.Return(v.by.Principal, 1)
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
