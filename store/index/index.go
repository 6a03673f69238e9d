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

	"corral/store/at"
)

// Options configure an Index. Zero values stand for the defaults.
type Options struct {
	TTL time.Duration // how long a source can be found; default 14 days
	// MaxBytes bounds the text and titles in one base. Each chunk counts 200 bytes more, each source 1 KiB, which
	// approximates the disk space. The oldest sources are evicted first. Default 1 GiB, at least 1 MiB.
	MaxBytes int64
	Now      func() time.Time
	Log      *slog.Logger // default: none
	// Rebuild fills a base that was damaged and has been recreated. It runs in the background until ctx ends. It adds the
	// former sources that can still be obtained, the oldest first, with their original Source.Time. nil leaves the base
	// empty.
	Rebuild func(ctx context.Context, b Base, add func(Source, io.Reader) error) error
}

// An Index gives access to the knowledge bases of a user. It is safe for concurrent use, and several processes may use
// the same bases.
type Index struct {
	ttl      time.Duration
	maxBytes int64
	now      func() time.Time
	log      *slog.Logger
	sections int64 // maximum per source
	sources  int64 // maximum per base
	rebuild  func(ctx context.Context, b Base, add func(Source, io.Reader) error) error

	state   int           // descriptor of the state directory
	adding  chan struct{} // one token per running Add
	opening chan struct{} // one token: bases are opened one at a time
	ctx     context.Context
	stop    context.CancelFunc
	work    sync.WaitGroup // running operations and background work

	mu            sync.Mutex // guards the following fields
	closed        bool
	lastIdleCheck time.Time // time of the last check for idle bases
	open          map[Base]*base
	clock         uint64                      // for base.used
	rebuilding    map[Base]context.CancelFunc // bases that are being rebuilt
}

const (
	defaultTTL      = 14 * 24 * time.Hour
	defaultMaxBytes = 1 << 30
	minMaxBytes     = 1 << 20
	maxSections     = 200_000 // per source
	maxSources      = 50_000  // per base
	// addsAtOnce bounds memory: each Add holds its batches, its vocabulary and SQLite's caches.
	addsAtOnce = 2
)

// Open opens the index in a state directory, which remains owned by the caller and may be closed. It creates no files. In
// the background, it removes bases that have not been written to for longer than TTL.
//
// It fails if the directory cannot be reopened or an option is out of bounds.
func Open(state *os.File, o Options) (*Index, error) {
	x := &Index{
		ttl: o.TTL, maxBytes: o.MaxBytes, now: o.Now, log: o.Log, rebuild: o.Rebuild,
		sections: maxSections, sources: maxSources,
		adding: make(chan struct{}, addsAtOnce), opening: make(chan struct{}, 1), open: map[Base]*base{},
		rebuilding: map[Base]context.CancelFunc{},
	}
	x.defaults()
	if x.ttl < 0 || x.maxBytes < minMaxBytes {
		return nil, fmt.Errorf("index: ttl %v must not be negative, and max_bytes %d must be at least %d", x.ttl, x.maxBytes, minMaxBytes)
	}
	var err error
	if x.state, err = at.Reopen(state); err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	x.ctx, x.stop = context.WithCancel(context.Background())
	x.mu.Lock()
	defer x.mu.Unlock()
	x.checkIdle()
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

// begin registers an operation that Close waits for. The caller must call done at its end.
func (x *Index) begin() (done func(), err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, ErrClosed
	}
	x.work.Add(1)
	x.checkIdle()
	return x.work.Done, nil
}

// Close waits for running operations, cancels background work, and closes all files. To end an Add sooner, cancel its
// context.
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
		errs = append(errs, b.Close())
	}
	x.open = nil
	closeFD(x.state)
	return errors.Join(errs...)
}
