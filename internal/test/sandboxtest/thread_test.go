package sandboxtest

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOnThread: f is never on the thread that outlives it, however many ask.
func TestOnThread(t *testing.T) {
	var mu sync.Mutex
	threads := map[int]bool{} // of those that are held
	var held, all sync.WaitGroup
	held.Add(50)
	for range 50 {
		all.Go(func() {
			OnThread(func() {
				mu.Lock()
				threads[unix.Gettid()] = true
				mu.Unlock()
				held.Done()
				held.Wait()
			})
		})
	}
	all.Wait()
	if len(threads) != 50 || threads[unix.Getpid()] {
		t.Errorf("%d threads; the first one: %v", len(threads), threads[unix.Getpid()])
	}
}
