package job

import (
	"fmt"
	"maps"
	"sync"
	"time"
)

// A Quota bounds what one principal uses. A zero field bounds nothing.
type Quota struct {
	Jobs   int   // that run or wait at once
	Output int64 // bytes that its jobs write in a day, and as much at once
}

// Quotas bound what each principal uses, so that none takes all of a Queue, or keeps a server busy with output. A nil *Quotas and the
// zero value bound nothing.
type Quotas struct {
	mu      sync.Mutex
	most    map[string]Quota  // guarded by mu: by principal
	used    map[string]int    // guarded by mu: jobs that run or wait; has no zeros
	written map[string]bucket // guarded by mu: of principals with a bound of output
}

// A bucket has the bytes that jobs of a principal may still write; it is below zero after jobs that wrote more. It is a token bucket
// (Turner, New Directions in Communications, 1986).
type bucket struct {
	bytes float64
	at    time.Time // time of bytes
}

const day = 24 * time.Hour

// Set replaces the quotas, by principal. Those that are not in most have none. Jobs that run are not ended, and what jobs have written
// still counts.
func (q *Quotas) Set(most map[string]Quota) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.most = maps.Clone(most)
	maps.DeleteFunc(q.written, func(principal string, _ bucket) bool { return most[principal].Output == 0 })
}

// take counts a job of a principal; give must be called once when it has ended. The error is a reached.
func (q *Quotas) take(principal string) (give func(), err error) {
	if q == nil {
		return func() {}, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	used, most := q.used[principal], q.most[principal]
	if most.Jobs > 0 && used >= most.Jobs {
		return nil, reached{"concurrency", fmt.Sprintf("Concurrency limit reached (%d/%d jobs of %s)", used, most.Jobs, principal)}
	}
	if b := q.left(principal, most.Output); b.bytes <= 0 && most.Output > 0 {
		wait := time.Duration((1-b.bytes)/float64(most.Output)*float64(day)).Truncate(time.Second) + time.Second
		size := FormatSize(most.Output)
		return nil, reached{"output", fmt.Sprintf("Output limit reached (%s a day of %s): try again in %v", size, principal, wait)}
	}
	if q.used == nil {
		q.used = map[string]int{}
	}
	q.used[principal] = used + 1
	return func() { q.give(principal) }, nil
}

func (q *Quotas) give(principal string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.used[principal]--; q.used[principal] == 0 {
		delete(q.used, principal)
	}
}

// wrote counts what a job of a principal has written.
func (q *Quotas) wrote(principal string, bytes int64) {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	most := q.most[principal].Output
	if most == 0 {
		return
	}
	b := q.left(principal, most)
	b.bytes -= float64(bytes)
	if q.written == nil {
		q.written = map[string]bucket{}
	}
	q.written[principal] = b
}

// left returns what jobs of a principal may write now, of most bytes in a day. The caller holds q.mu.
func (q *Quotas) left(principal string, most int64) bucket {
	now := time.Now()
	b, known := q.written[principal]
	if !known {
		return bucket{float64(most), now}
	}
	passed := max(0, now.Sub(b.at))
	return bucket{min(float64(most), b.bytes+float64(most)*passed.Seconds()/day.Seconds()), now}
}
