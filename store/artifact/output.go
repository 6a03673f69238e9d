package artifact

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"corral/internal/redact"
	"corral/job"
)

// BeginOptions configure an Output: its owner, and which parts of it to show.
type BeginOptions struct {
	Repo      string // id of the repository
	Runtime   string
	Principal string // that may read the artifact
	Persist   bool   // store the output
	View      View
	// Secrets are values to redact everywhere: those of the environment variables that the operator passes to jobs.
	// Values shorter than eight bytes are not redacted.
	Secrets []string
	// Plain disables redaction, if the operator configures that.
	Plain bool
	// Exact is for output that is useful only if complete, such as a patch: nothing in it is redacted, and if it is
	// longer than Options.StreamBytes it is not stored.
	Exact bool
}

// An Output takes the output of one job. It implements job.Output.
type Output struct {
	store  *Store // nil stores nothing
	begin  BeginOptions
	handle string
	limit  int64 // bytes per stream

	totals [2]atomic.Int64 // bytes of the streams so far

	mu       sync.Mutex  // guards the fields below
	streams  [2]*stream  // stdout, stderr; nil before Streams and after they have ended
	margins  [2]*margins // of the two streams, valid after they have ended; nil before Streams
	ended    bool
	captured Captured
	live     *Feed                 // nil before Streams, and if nobody can follow
	pending  func() (*temp, error) // becomes the artifact; nil before Streams, and if nothing is stored
}

// A Captured is the part of a job's output that a reply shows.
type Captured struct {
	// Handle identifies the artifact; "" if none was stored. Reason says why not, unless storing was not requested.
	Handle string
	Reason string
	Stdout StreamCapture
	Stderr StreamCapture
	// Excerpts are those of the View's terms; never nil.
	Excerpts []Excerpt
	Over     bool // the job wrote more than View.Whole
}

// A StreamCapture is the part of one stream that a reply shows.
type StreamCapture struct {
	Bytes     int64  // written by the job
	Lines     int64  // number of newlines, plus one for a last line without
	Truncated bool   // it is longer than Options.StreamBytes, so not all of it is stored, or would be
	Summary   string // as the View requests; valid UTF-8
	Whole     string // with View.Whole: all of it after redaction, or what came before the maximum was exceeded
	// Head and Tail are the beginning and the end of it after redaction, with View.Ends; Between is the number of
	// bytes in neither.
	Head, Tail string
	Between    int64
}

// Size returns the length of the stream in bytes, after redaction. It requires View.Ends.
func (c *StreamCapture) Size() int64 { return int64(len(c.Head)+len(c.Tail)) + c.Between }

// Begin returns an Output. It creates no file and starts no goroutine yet. On a nil Store nothing is stored.
func (s *Store) Begin(o BeginOptions) *Output {
	out := &Output{begin: o, limit: defaultStream, captured: Captured{Excerpts: []Excerpt{}}}
	if s != nil {
		out.limit = s.streamBytes
	}
	if !o.Persist {
		return out
	}
	if s == nil || s.readOnly {
		out.captured.Reason = "there is no directory to store output in"
		return out
	}
	handle, ok := newHandle(o.Repo, s.now())
	if !ok {
		out.captured.Reason = "the repository's id is too long for a handle"
		return out
	}
	out.store, out.handle = s, handle
	return out
}

// Handle implements job.Output.
func (o *Output) Handle() string { return o.handle }

// Streams implements job.Output. The job's ends are close-on-exec, and blocking, as programs expect.
func (o *Output) Streams() (stdout, stderr *os.File, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended || o.streams[0] != nil {
		return nil, nil, errors.New("Streams was already called, or the output has ended")
	}
	if o.store != nil {
		o.pending = o.store.disk.Prepare(o.handle)
		if o.store.samples != nil {
			o.store.samples.Begin(o.handle)
		}
		if o.store.live {
			o.live = NewFeed(o.handle)
		}
	}
	var rules redact.Rules
	if !o.begin.Plain && !o.begin.Exact {
		rules = redact.NewRules(o.begin.Secrets)
	}
	first, second := o.begin.View.selection()
	whole := o.begin.View.whole()
	for i, w := range [...]selection{first, second} {
		o.margins[i] = newMargins(o.begin.View.Ends)
		o.streams[i] = &stream{
			total: &o.totals[i], hide: rules.Stream(), view: newLineReader(w), keep: o.spool(i), whole: whole,
			ends: o.margins[i], live: o.live,
		}
	}
	if stdout, err = o.streams[0].open(); err != nil {
		o.streams = [2]*stream{}
		return nil, nil, err
	}
	if stderr, err = o.streams[1].open(); err != nil {
		o.streams[1] = nil
		stdout.Close()
		o.end()
		return nil, nil, err
	}
	return stdout, stderr, nil
}

// spool returns the spool that stores stream i, or nil if nothing is stored.
func (o *Output) spool(i int) *spool {
	if o.store == nil {
		return nil
	}
	pending := o.pending
	return &spool{
		pool: &o.store.hashers, limit: o.limit, mark: ownerMark(o.handle, o.begin.Principal),
		file: func() (io.Writer, error) {
			t, err := pending()
			if err != nil {
				return nil, err
			}
			return t.Writer(i), nil
		},
	}
}

// Written implements job.Output.
func (o *Output) Written() (stdout, stderr int64) {
	return o.totals[0].Load(), o.totals[1].Load()
}

// Margins returns the current state of a stream, Stdout or Stderr, with View.Ends: Head, Tail and Between, and Bytes,
// which includes bytes held back until redaction has decided on them. It may be called at any time.
func (o *Output) Margins(stream string) StreamCapture {
	n := 0
	if stream == Stderr {
		n = 1
	}
	o.mu.Lock()
	m := o.margins[n]
	o.mu.Unlock()
	c := StreamCapture{Bytes: o.totals[n].Load()}
	c.Head, c.Tail, c.Between = m.both(false)
	return c
}

// Finish implements job.Output. When it returns, Captured is complete, and the artifact can be read by the handle in
// it.
func (o *Output) Finish(r *job.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended || o.streams[0] == nil {
		return
	}
	for _, s := range o.streams {
		s.finish(grace)
	}
	o.capture()
	if (o.captured.Stdout.Truncated || o.captured.Stderr.Truncated) && r.Result.Limit == "" {
		r.Result.Limit = job.LimitOutput
	}
	if o.store != nil {
		if err := o.commit(r); err != nil {
			o.captured.Reason = "the output could not be stored: " + reason(err)
		} else {
			o.captured.Handle = o.handle
		}
	}
	o.end()
}

// reason returns err as text for a client, without the names of files in the store.
func reason(err error) string {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// capture copies what the reply shows from the streams.
func (o *Output) capture() {
	stdout, stderr := o.streams[0], o.streams[1]
	c, v := &o.captured, o.begin.View
	for i, s := range o.streams {
		to := [...]*StreamCapture{&c.Stdout, &c.Stderr}[i]
		to.Bytes, to.Lines = s.total.Load(), s.view.Count()
		to.Truncated = s.passed > o.limit
		to.Whole = string(s.shown)
		to.Head, to.Tail, to.Between = s.ends.both(true)
		c.Over = s.whole.isOver()
	}
	if v.Lines > 0 {
		c.Stdout.Summary = stdout.view.Summary(v.Lines/2, v.Lines-v.Lines/2, true)
		c.Stderr.Summary = stderr.view.Summary(0, v.Lines/4, false)
	}
	if len(v.Terms) == 0 {
		return
	}
	views := readers{Stdout: stdout.view, Stderr: stderr.view}
	c.Excerpts = views.found(DefaultExcerpts)
	if len(c.Excerpts) == 0 && v.Fallback {
		c.Excerpts = views.front(DefaultExcerpts)
	}
}

// Captured returns the captured output. It is empty before Finish.
func (o *Output) Captured() Captured {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.captured
}

// Discard implements job.Output.
func (o *Output) Discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.captured.Reason = ""
		o.end()
	}
}

// end stops the readers and removes everything that did not become an artifact. The caller holds mu.
func (o *Output) end() {
	o.ended = true
	defer o.live.End()
	for i, s := range o.streams {
		if s == nil {
			continue
		}
		s.finish(0)
		if s.keep != nil {
			s.keep.Discard()
		}
		o.streams[i] = nil
	}
	if o.pending == nil {
		return
	}
	if o.store.samples != nil {
		o.store.samples.End(o.handle)
	}
	if t, err := o.pending(); err == nil {
		o.store.disk.Drop(t)
	}
	o.pending = nil
}
