package store

import (
	"errors"
	"sync"
	"testing"
)

// TestLazy checks that a value is opened once by concurrent callers, again after an error, and not after close.
func TestLazy(t *testing.T) {
	failed, opens := errors.New("disk full"), 0
	l := lazy[int]{open: func() (int, error) {
		opens++ // guarded by lazy.mu
		if opens == 1 {
			return 7, failed
		}
		return opens, nil
	}}
	if n, err := l.get(); n != 0 || !errors.Is(err, failed) {
		t.Errorf("%d, %v", n, err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if n, err := l.get(); n != 2 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		})
	}
	all.Wait()
	if n, opened := l.close(); n != 2 || !opened || opens != 2 {
		t.Errorf("%d, %t, opened %d times", n, opened, opens)
	}
	if _, err := l.get(); !errors.Is(err, errClosed) {
		t.Errorf("after close: %v", err)
	}
	if _, opened := l.close(); opened {
		t.Error("closed twice")
	}
}
