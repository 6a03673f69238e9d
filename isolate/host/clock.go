package host

import (
	"time"

	"golang.org/x/sys/unix"
)

// FileTime returns the time of the tick clock, which most file systems use for time stamps.
func FileTime() time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts); err != nil {
		return time.Now() // every supported kernel has this clock
	}
	return time.Unix(ts.Unix())
}

// ClockStep is the coarsest granularity of file times (one jiffy at 100 Hz): within it, a change can appear older
// than the moment before it.
const ClockStep = 10 * time.Millisecond
