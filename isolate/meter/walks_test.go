package meter

import (
	"os"
	"testing"
	"time"
)

// TestShortList: a short list acquits, unless walking has taken too long: then no directory is walked, and each counts as long.
func TestShortList(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	asked := 0
	o := openFiles{until: time.Now().Add(time.Hour), walk: func(dir *os.File) (time.Duration, error) {
		asked++
		return shortWalk - 1, dir.Close()
	}}
	if !o.isShort(os.Getpid(), int(dir.Fd())) || asked != 1 || o.late {
		t.Errorf("a short list counts as long, asked %d times", asked)
	}
	o.until = time.Now().Add(-time.Second)
	if o.isShort(os.Getpid(), int(dir.Fd())) || asked != 1 || !o.late {
		t.Errorf("a list counts as short after the time to ask, asked %d times", asked)
	}
}
