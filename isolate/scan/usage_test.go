package scan

import (
	"errors"
	"testing"
	"time"
)

// TestUsage: Usage sums the allocated space and the inodes changed since, and returns ErrIncomplete at a bound.
func TestUsage(t *testing.T) {
	dir := t.TempDir()
	shell(t, dir, "dd if=/dev/zero of=old bs=4096 count=100 2>/dev/null; mkdir sub")
	s := scanner(t, dir, Bounds{})
	since := settle()
	bytes, inodes, err := s.Usage(since)
	// On an emulated machine, file times can be ahead of the clock for a moment.
	for end := time.Now().Add(10 * time.Second); inodes != 0 && time.Now().Before(end); bytes, inodes, err = s.Usage(since) {
		since = settle()
	}
	if bytes != 0 || inodes != 0 || err != nil {
		t.Errorf("nothing was changed, but got %d bytes, %d inodes, %v", bytes, inodes, err)
	}
	shell(t, dir, "dd if=/dev/zero of=sub/new bs=4096 count=10 2>/dev/null; ln sub/new sub/link; mkfifo sub/.git; truncate -s 1G sub/sparse; sync -f .")
	bytes, inodes, err = s.Usage(since)
	// sub itself, new, .git, sparse. A directory, and the file system's own data, take a few blocks at most.
	if inodes != 4 || bytes < 10*4096 || bytes > 10*4096+64<<10 || err != nil {
		t.Errorf("Usage = %d bytes, %d inodes, %v", bytes, inodes, err)
	}
	if bytes, inodes, err := s.Usage(time.Time{}); inodes != 5 || bytes < 110*4096 || err != nil {
		t.Errorf("Usage of all = %d bytes, %d inodes, %v", bytes, inodes, err)
	}
	bounded := scanner(t, dir, Bounds{MaxEntries: 2})
	if _, _, err := bounded.Usage(time.Time{}); !errors.Is(err, ErrIncomplete) {
		t.Errorf("bounded: %v", err)
	}
}
