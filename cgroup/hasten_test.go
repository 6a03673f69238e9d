package cgroup

import (
	"os"
	"testing"
)

// TestHasten: this process is where it was, and what waits for the same goes on.
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
			t.Errorf("the process was in\n%sand is in\n%s%v", before, after, err)
		}
	})
}
