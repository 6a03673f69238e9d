package job

import (
	"fmt"
	"maps"
	"sync"
)

// Quotas bound how many jobs of one principal run or wait at once, so that none takes the whole Queue. A nil *Quotas and the zero
// value bound nothing.
type Quotas struct {
	mu   sync.Mutex
	most map[string]int // guarded by mu: by principal
	used map[string]int // guarded by mu: jobs that run or wait; has no zeros
}

// Set replaces the quotas, by principal. Those that are not in most have none. Jobs that run are not ended.
func (q *Quotas) Set(most map[string]int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.most = maps.Clone(most)
}

// take counts a job of a principal; give must be called once when it has ended. The error is ErrFull.
func (q *Quotas) take(principal string) (give func(), err error) {
	if q == nil {
		return func() {}, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	used := q.used[principal]
	if most, bounded := q.most[principal]; bounded && used >= most {
		return nil, quota{principal, used, most}
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

// quota is ErrFull for one principal.
type quota struct {
	principal  string
	used, most int
}

func (q quota) Error() string {
	return fmt.Sprintf("Concurrency limit reached (%d/%d jobs of %s)", q.used, q.most, q.principal)
}

func (q quota) Is(err error) bool { return err == ErrFull }
