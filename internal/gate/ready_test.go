package gate

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestReadinessBounded: however often anybody asks, the server is asked once per second, and nobody waits for another's
// question.
func TestReadinessBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, wait := 0, make(chan struct{})
		r := NewReadiness(func() error {
			calls++
			if calls == 2 {
				<-wait
				return errors.New("down")
			}
			return nil
		})
		for range 1000 {
			if !r.Is() {
				t.Fatal("not ready")
			}
		}
		time.Sleep(readyInterval)
		answered := make(chan bool)
		go func() { answered <- r.Is() }()
		synctest.Wait() // it waits for the second call
		if !r.Is() {
			t.Error("the former answer does not hold while another caller waits")
		}
		close(wait)
		if <-answered {
			t.Error("ready although it is not")
		}
		if calls != 2 {
			t.Errorf("%d calls", calls)
		}
	})
}
