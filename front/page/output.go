package page

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"

	"corral/internal/text"
)

const (
	// maxKept is how much of the end of a running job's output is kept for those who look at it, in bytes.
	maxKept = 64 << 10
	// outputInterval is the minimum time between two events with output: a job that writes much costs no more than that.
	outputInterval = 100 * time.Millisecond
)

// tails are the outputs of running jobs that somebody looks at: one follower for each job, however many look. The zero value is ready
// to use, with follow set.
type tails struct {
	follow func(ctx context.Context, handle string, w io.Writer, skipped func(bytes int64)) error

	mu   sync.Mutex
	open map[string]*tail // guarded by mu: by handle
}

// A tail is the end of the output of a running job. It implements io.Writer.
type tail struct {
	users int // guarded by tails.mu
	stop  context.CancelFunc

	mu    sync.Mutex
	kept  []byte        // guarded by mu: at most maxKept bytes
	from  int64         // guarded by mu: position of the first of them in the output
	ended bool          // guarded by mu
	err   error         // guarded by mu: why it ended, nil if the job has
	news  chan struct{} // guarded by mu: closed by the next change
}

// use returns the output with a handle. The caller calls leave.
func (t *tails) use(handle string) (one *tail, leave func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = map[string]*tail{}
	}
	if one = t.open[handle]; one == nil {
		ctx, stop := context.WithCancel(context.Background())
		one = &tail{stop: stop, news: make(chan struct{})}
		t.open[handle] = one
		go func() { one.end(t.follow(ctx, handle, one, one.skip)) }()
	}
	one.users++
	return one, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.users--; one.users == 0 {
			one.stop()
			delete(t.open, handle)
		}
	}
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if extra := len(t.kept) - maxKept; extra > 0 {
		t.kept = bytes.Clone(t.kept[extra:])
		t.from += int64(extra)
	}
	t.wake()
	return len(p), nil
}

// skip says how much was written before the first Write.
func (t *tail) skip(bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.from += bytes
}

func (t *tail) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended, t.err = true, err
	t.wake()
}

// wake tells those who look. The caller holds t.mu.
func (t *tail) wake() {
	close(t.news)
	t.news = make(chan struct{})
}

// next returns the output from a position on, its position, which is larger if some was lost, and a channel that is closed when there
// is more. A character that is not complete yet is left for the next call.
func (t *tail) next(at int64) (p []byte, from int64, ended bool, news <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from = max(at, t.from)
	p = append(p, t.kept[from-t.from:]...)
	if !t.ended {
		p = whole(p)
	}
	return p, from, t.ended, t.news, t.err
}

// whole returns p without a character at its end that is not complete.
func whole(p []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(p); n++ {
		if last := p[len(p)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return p[:len(p)-n]
			}
			break
		}
	}
	return p
}

// An outputView is the event "output".
type outputView struct {
	Text string `json:"text"`
	Lost int64  `json:"lost,omitempty"` // bytes before text that are not shown
}

// liveOutput sends the end of the output of a running job, and what it writes from then on, until it ends.
func (s *Server) liveOutput(st *stream, r *http.Request, v *visitor) {
	e, err := s.find(r.Context(), v, r.PathValue("job"))
	if err != nil {
		failed(st.w, err)
		return
	}
	if e.Artifact == "" {
		fail(st.w, http.StatusConflict, "the output of this job is not stored: it goes to the program that started the job")
		return
	}
	t, leave := s.tails.use(e.Artifact)
	defer leave()
	if st.write([]byte(": output\n\n")) != nil {
		return
	}
	at := int64(0)
	for {
		p, from, ended, news, err := t.next(at)
		if len(p) > 0 || from > at {
			if st.send("output", outputView{text.Lines(string(p)), from - at}) != nil {
				return
			}
			at = from + int64(len(p))
		}
		if ended {
			_ = st.send("end", endView(err)) // the stream ends anyway
			return
		}
		time.Sleep(outputInterval)
		if !st.wait(news) {
			return
		}
	}
}

func endView(err error) map[string]string {
	if err != nil {
		return map[string]string{"error": text.Lines(err.Error())}
	}
	return map[string]string{}
}
