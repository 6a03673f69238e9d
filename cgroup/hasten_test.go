package cgroup

import (
	"os"
	"testing"
)

// Hasten leaves this process in its groups, and does not block other moves.
func TestHasten(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		i := newInstance(t, s)
		before, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			i.Hasten()
			close(done)
		}()
		newJail(t, i)
		<-done
		if after, err := os.ReadFile("/proc/self/cgroup"); err != nil || string(after) != string(before) {
			t.Errorf("the process was in\n%sand now is in\n%s%v", before, after, err)
		}
	})
}
