package runtimes

import "testing"

// BenchmarkChoose measures finding the program of a request when nothing has changed since the last one.
func BenchmarkChoose(b *testing.B) {
	i := Find(Places{})
	code := "1"
	for b.Loop() {
		if c, missing := i.Choose("shell", "", nil); missing == "" {
			c.Plan(&code, nil)
		}
	}
}
