package serve

import "runtime"

// growStack grows the goroutine's stack to the size a job needs while the stack is still empty. The runtime starts
// with a small stack and doubles it on demand, copying all frames each time, which takes longer than most steps of a
// job's start (CockroachDB has package growstack for the same reason).
//
//go:noinline
func growStack() {
	var frame [10 << 10]byte // grows the stack to 16 KiB; the runtime has no larger ones cached
	runtime.KeepAlive(&frame)
}
