package sandboxtest

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOnThread: f never runs on the process's first thread, however many calls run at once.
func TestOnThread(t *testing.T) {
	var mu sync.Mutex
	threads := map[int]bool{} // ids of the threads in use
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
