package isolate

import "runtime"

// growStack has a goroutine's stack grow to what a job takes, while there is nothing on it yet. The runtime begins with a
// small one and doubles it on the way, and each time it moves all there is: that takes longer than most steps of a job's
// start (CockroachDB has a package growstack for it).
//
//go:noinline
func growStack() {
	var frame [10 << 10]byte // makes it 16 KiB: of larger ones the runtime has none at hand
	runtime.KeepAlive(&frame)
}
