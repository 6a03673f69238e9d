package meter

import (
	"sync"
	"sync/atomic"
)

// allBlameless calls check for each job, in the given order, atOnce at a time. It reports whether each of them was read in full and is
// not to blame.
func allBlameless[T any](all []T, atOnce int, check func(T) bool) bool {
	var blamed atomic.Bool
	var checks sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for _, h := range all {
		turns <- struct{}{}
		checks.Go(func() {
			if !check(h) {
				blamed.Store(true)
			}
			<-turns
		})
	}
	checks.Wait()
	return !blamed.Load()
}
