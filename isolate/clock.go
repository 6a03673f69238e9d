package isolate

import (
	"time"

	"golang.org/x/sys/unix"
)

// fileTime returns the time of the tick clock, which most file systems use for time stamps.
func fileTime() time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts); err != nil {
		return time.Now() // every supported kernel has this clock
	}
	return time.Unix(ts.Unix())
}

// clockStep is the coarsest granularity of file times (one jiffy at 100 Hz): within it, a change can appear older
// than the moment before it.
const clockStep = 10 * time.Millisecond
