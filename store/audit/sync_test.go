package audit

import (
	"sync"
	"testing"
	"time"
)

// TestSync: records are synced soon in groups or, with each, before append returns; one call syncs many.
func TestSync(t *testing.T) {
	for _, each := range []bool{false, true} {
		calls, enter, leave := 0, make(chan struct{}), make(chan struct{})
		s := newSyncer(each, func() error {
			calls++
			enter <- struct{}{}
			<-leave
			return nil
		})
		var waiting sync.WaitGroup
		var returned sync.WaitGroup
		returned.Add(9)
		add := func(seq uint64) {
			waiting.Go(func() {
				if err := s.Wrote(seq); err != nil {
					t.Error(err)
				}
				s.mu.Lock()
				if each && s.synced < seq {
					t.Errorf("record %d returned when %d were synced", seq, s.synced)
				}
				s.mu.Unlock()
				returned.Done()
			})
		}
		add(1)
		<-enter
		for seq := uint64(2); seq < 10; seq++ {
			add(seq)
		}
		for { // until all others wait or have returned
			s.mu.Lock()
			all := s.written == 9
			s.mu.Unlock()
			if all {
				break
			}
			time.Sleep(time.Millisecond)
		}
		leave <- struct{}{}
		done := make(chan error)
		go func() { returned.Wait(); done <- s.End() }()
		for ended := false; !ended; {
			select {
			case <-enter:
				leave <- struct{}{}
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
				ended = true
			}
		}
		waiting.Wait()
		if calls < 2 || calls > 4 || s.synced != 9 {
			t.Errorf("each %v: %d calls, %d synced", each, calls, s.synced)
		}
	}
}
