package isolate

import (
	"fmt"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
	"corral/isolate/admit"
	"corral/isolate/probe"
)

// TestReloadStalled: a configured directory whose owner has it served by a file system that never answers is not served, and
// keeps no other from being served, however often the configuration is read again.
func TestReloadStalled(t *testing.T) {
	files := sandboxtest.StartFileServer(t, owner)
	f, w := reloadable(t, func(c *Config) { c.switches.probing = 200 * time.Millisecond })
	w.write(func(c *Config) {
		for i := range probe.MaxUser + 1 {
			c.Repos = append(c.Repos, admit.Entry{Path: fmt.Sprintf("%s/dir%d", files.Dir, i)})
		}
		c.Repos = append(c.Repos, admit.Entry{Path: newRepo(t)}) // the last one that is opened
	})
	files.Stall(t)
	for range 2 {
		t.Log(f.reload())
	}
	f.Sh("true")
}

// TestStartStalled: a supervisor starts although a configured directory is on a file system that never answers.
func TestStartStalled(t *testing.T) {
	files := sandboxtest.StartFileServer(t, owner)
	files.Stall(t)
	started := make(chan struct{})
	var f *front
	go func() {
		defer close(started)
		f, _ = reloadable(t, func(c *Config) {
			c.switches.probing = 200 * time.Millisecond
			c.Repos = append([]admit.Entry{{Path: files.Dir + "/dir"}}, c.Repos...)
		})
	}()
	select {
	case <-started:
	case <-time.After(sandboxtest.Slow(30 * time.Second)):
		files.End() // lets the kernel answer, and the test end
		<-started
		t.Fatal("the supervisor waits for a user's file system")
	}
	f.Sh("true")
}
