package artifact

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"time"

	"corral/job"
)

// Options of a Store. A zero field means its default.
type Options struct {
	TTL      time.Duration // how long an artifact can be read; default 24 h
	MaxCount int           // maximum number of artifacts, the oldest are evicted; default 1000
	MaxBytes int64         // maximum size on disk of all artifacts, the oldest are evicted; default 1 GiB
	// StreamBytes is the maximum number of bytes stored of a stream, before compression: its head, and its last MiB.
	// Default 64 MiB; maximum 1 GiB.
	StreamBytes int64
	// FsyncEach syncs an artifact to disk before its handle is returned. Without it, artifacts are synced in groups
	// within 20 ms; after a power cut a returned handle may be unknown.
	FsyncEach bool
	// ReadOnly creates and removes nothing. A directory without a store is an empty store then.
	ReadOnly bool
	// Live lets the user follow stored output while its job runs, see Feed.
	Live bool
	// Samples takes samples of jobs whose output is stored, which are stored with it; nil takes none.
	Samples Sampler
	Now     func() time.Time // default time.Now
}

// A Sampler takes samples of jobs from Begin to End, by the handle of their output.
type Sampler interface {
	// Begin starts taking samples of the job whose output will have the handle.
	Begin(handle string)
	// End returns the samples, at most job.MaxSamples. It may be called more than once.
	End(handle string) []job.Sample
}

// A Store keeps artifacts in a directory. Its methods may be called by several goroutines at once; several processes
// may have the same directory open.
type Store struct {
	ttl         time.Duration
	streamBytes int64
	readOnly    bool
	live        bool
	samples     Sampler // may be nil
	now         func() time.Time

	disk    *diskDir
	hashers gzipPool
	reading chan struct{} // semaphore of running queries
}

// Open opens the store in a state directory, and creates it if missing. The caller keeps ownership of state. Expired
// artifacts, and what killed processes left, are removed in the background, now and at intervals.
//
// The error is about the directory, or an option that is out of bounds.
func Open(state *os.File, o Options) (*Store, error) {
	o.defaults()
	if o.TTL < 0 || o.MaxCount < 0 || o.MaxBytes < 0 || o.StreamBytes < minStream || o.StreamBytes > maxStream-markerRoom {
		return nil, fmt.Errorf("artifacts: ttl %v, max_count %d, max_bytes %d, %d bytes of a stream: a value is out of bounds",
			o.TTL, o.MaxCount, o.MaxBytes, o.StreamBytes)
	}
	d, err := openDir(state, o)
	if err != nil {
		return nil, fmt.Errorf("artifacts: %w", err)
	}
	return &Store{
		ttl: o.TTL, streamBytes: o.StreamBytes, readOnly: o.ReadOnly, live: o.Live, samples: o.Samples, now: o.Now, disk: d,
		reading: make(chan struct{}, runtime.GOMAXPROCS(0)),
	}, nil
}

// defaultStream is the default of Options.StreamBytes.
const defaultStream = 64 << 20

// minStream is the minimum of Options.StreamBytes: a smaller one would have no room for the marker of a gap.
const minStream = 1 << 10

func (o *Options) defaults() {
	o.TTL = cmp.Or(o.TTL, 24*time.Hour)
	o.MaxCount = cmp.Or(o.MaxCount, 1000)
	o.MaxBytes = cmp.Or(o.MaxBytes, 1<<30)
	o.StreamBytes = cmp.Or(o.StreamBytes, defaultStream)
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Used returns the size on disk of all artifacts in bytes, and false if it is not known. It does not block.
func (s *Store) Used() (bytes int64, ok bool) {
	if s == nil {
		return 0, false
	}
	return s.disk.Used()
}

// Close waits for the background work. All Outputs must have ended.
func (s *Store) Close() {
	if s != nil {
		s.disk.Close()
	}
}
