package index

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"corral/index/chunk"
)

// Options of an Index. The zero value of each is its default.
type Options struct {
	TTL time.Duration // how long a source can be found; default 14 days
	// MaxBytes is of text and titles in one base, each section counting for 200 more, each source for 1 KiB: about what it
	// takes of the disk. The oldest sources go first; default 1 GiB, at least 1 MiB.
	MaxBytes int64
	Now      func() time.Time
	Log      *slog.Logger // default: none
	// Rebuild fills a base that was damaged and has been begun anew. It runs in the background, ends when ctx does, and
	// adds what the base had, as far as it is still known, the oldest first; Source.Time says when that was. nil leaves
	// the base empty.
	Rebuild func(ctx context.Context, b Base, add func(Source, io.Reader) error) error
}

// A Base is whose knowledge base it is. Any two strings are good; they are never part of a path.
type Base struct{ Repo, Principal string }

// A Format is what a stream is written in.
type Format = chunk.Format

// The formats. Auto is the zero value: the stream tells.
const (
	Auto     = chunk.Auto
	Text     = chunk.Text
	Markdown = chunk.Markdown
	JSON     = chunk.JSON
)

// Classes of chunks.
const (
	Code  = chunk.Code
	Prose = chunk.Prose
)

// A Source is what is to be added.
type Source struct {
	Label string // of 1 to 200 bytes, one line; the source is named Label#n, n from 1
	// Fixed makes the name Label itself. What was Fixed and had that name before is replaced when all of the new one is
	// there; a name that Add made is not to be had: ErrTaken.
	Fixed bool
	// Artifact and Stream say what it is a copy of: a handle, and "stdout" or "stderr"; of at most 200 bytes each. "" is
	// none.
	Artifact, Stream string

	Title  string // of chunks without a heading; "" takes it from their text
	Format Format
	Class  string    // Code or Prose; "" is decided for each chunk
	Time   time.Time // when it was written; zero is now
}

// Added is what has become of a source.
type Added struct {
	Name         string
	Sections     int      // chunks
	Lines, Bytes int64    // as they were read
	Terms        []string // words that tell this source from others, at most 40, the best first
	Truncated    bool     // there was more than a base may have, or 200,000 sections
}

// An Index is the bases of a user. Its methods may be called at once from several goroutines, and several processes may
// have the same bases open.
type Index struct {
	ttl      time.Duration
	maxBytes int64
	now      func() time.Time
	log      *slog.Logger
	sections int64 // a source may have
	sources  int64 // a base may have
	rebuild  func(ctx context.Context, b Base, add func(Source, io.Reader) error) error

	state   int           // descriptor of the state directory
	adding  chan struct{} // one for each Add that runs now
	opening chan struct{} // one for who opens a base now
	ctx     context.Context
	stop    context.CancelFunc
	work    sync.WaitGroup // operations, and what is done in the background, that run now

	mu     sync.Mutex // guards what follows
	closed bool
	looked time.Time // when it was last looked for idle bases
	open   map[Base]*base
	clock  uint64                      // of base.used
	anew   map[Base]context.CancelFunc // bases that are filled again now
}

// Of these, errors.Is tells.
var (
	ErrClosed = errors.New("the index is closed")
	ErrPurged = errors.New("the knowledge base was purged meanwhile")
	ErrTaken  = errors.New("the name is one of a run's output")
)

const (
	defaultTTL      = 14 * 24 * time.Hour
	defaultMaxBytes = 1 << 30
	minMaxBytes     = 1 << 20
	maxSections     = 200_000 // of a source
	maxSources      = 50_000  // of a base
	// addsAtOnce bounds memory: each holds its batches, its vocabulary and what SQLite caches.
	addsAtOnce = 2
)

// Open opens the index in a directory of state, which stays the caller's and may be closed. It makes nothing, and has bases
// removed in the background that nobody wrote to for longer than TTL.
//
// The error is of the directory's descriptor, or of an option out of bounds.
func Open(state *os.File, o Options) (*Index, error) {
	x := &Index{
		ttl: o.TTL, maxBytes: o.MaxBytes, now: o.Now, log: o.Log, rebuild: o.Rebuild,
		sections: maxSections, sources: maxSources,
		adding: make(chan struct{}, addsAtOnce), opening: make(chan struct{}, 1), open: map[Base]*base{}, anew: map[Base]context.CancelFunc{},
	}
	x.defaults()
	if x.ttl < 0 || x.maxBytes < minMaxBytes {
		return nil, fmt.Errorf("index: ttl %v, max_bytes %d: out of bounds", x.ttl, x.maxBytes)
	}
	var err error
	if x.state, err = reopen(state); err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	x.ctx, x.stop = context.WithCancel(context.Background())
	x.mu.Lock()
	defer x.mu.Unlock()
	x.lookForIdle()
	return x, nil
}

func (x *Index) defaults() {
	if x.ttl == 0 {
		x.ttl = defaultTTL
	}
	if x.maxBytes == 0 {
		x.maxBytes = defaultMaxBytes
	}
	if x.now == nil {
		x.now = time.Now
	}
	if x.log == nil {
		x.log = slog.New(slog.DiscardHandler)
	}
}

// begin counts an operation that Close waits for, until done is called.
func (x *Index) begin() (done func(), err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, ErrClosed
	}
	x.work.Add(1)
	x.lookForIdle()
	return x.work.Done, nil
}

// Close waits for what runs, and closes all files. What is done in the background is ended. An Add ends sooner if its context does.
func (x *Index) Close() error {
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return nil
	}
	x.closed = true
	x.mu.Unlock()
	x.stop()
	x.work.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	var errs []error
	for _, b := range x.open {
		errs = append(errs, b.close())
	}
	x.open = nil
	closeFD(x.state)
	return errors.Join(errs...)
}
