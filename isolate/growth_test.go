package isolate

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/job"
)

// A count is the number of resources that a supervisor holds, by kind.
type count map[string]int

func (f *front) count() count {
	f.T.Helper()
	c := count{"goroutines": runtime.NumGoroutine(), "blocks": len(blocks(f.s.InstanceName())), "cgroups": 0}
	for kind, path := range map[string]string{"descriptors": "/proc/self/fd", "jails": filepath.Join(f.s.instance.Dir, "jails")} {
		entries, err := os.ReadDir(path)
		if err != nil {
			f.T.Fatal(err)
		}
		c[kind] = len(entries)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		f.T.Fatal(err)
	}
	c["mounts"] = strings.Count(string(mounts), "\n")
	for _, dir := range traces(f.s.InstanceName()) {
		if !strings.HasPrefix(dir, "/sys/fs/cgroup/") {
			continue
		}
		_ = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error { // what disappears meanwhile is not counted
			if err == nil && d.IsDir() {
				c["cgroups"]++
			}
			return nil
		})
	}
	return c
}

// withoutMaps is count without the jail's id maps. There is one for each user that had a job.
func (f *front) withoutMaps() count {
	c := f.count()
	for _, j := range f.s.standing() {
		c["descriptors"] -= j.IDMaps
	}
	return c
}

// above lists the kinds that there are more of than before, with slack for slots being made ahead.
func (c count) above(before count) string {
	const slack = 16
	var list []string
	for kind, n := range c {
		if n > before[kind]+slack {
			list = append(list, fmt.Sprintf("%s: %d, before %d", kind, n, before[kind]))
		}
	}
	return strings.Join(list, "; ")
}

// resident returns this process's memory in bytes after returning free memory to the system.
func resident(t *testing.T) int {
	t.Helper()
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// TestNoGrowth: many jobs, including jobs that fail to start, leave no resources behind.
func TestNoGrowth(t *testing.T) {
	f := newFront(t, func(c *Config) { c.Slots = 2 }) // with more, the number of waiting slots would change with demand
	good := f.Spec("/bin/true")
	missing := f.Spec("/no/such/program")
	closed := f.Spec("/bin/true")
	closed.Dir = "no/such/directory"
	run := func(n int) {
		for i := range n {
			if d := f.Run(good); d.Status != job.Success {
				t.Fatalf("%+v", d.Result)
			}
			if i%4 == 0 {
				_, err := f.Try(missing)
				refusedAt(t, "no program", err, "exec", 0)
				_, err = f.Try(closed)
				refusedAt(t, "no directory", err, "cwd", 0)
			}
		}
	}
	run(sandboxtest.Scale(100)) // a jail keeps an id map for each of its users
	before, memory := f.withoutMaps(), resident(t)
	run(sandboxtest.Scale(800))
	eventually(t, func() string { return f.withoutMaps().above(before) })
	grown := resident(t) - memory
	t.Logf("%v, memory grew by %d KiB", f.count(), grown>>10)
	if grown > 64<<20 {
		t.Errorf("memory grew by %d bytes", grown)
	}
}

// TestManyAtOnce: concurrent jobs of one jail have different users and leave nothing behind.
func TestManyAtOnce(t *testing.T) {
	f := newFront(t, func(c *Config) { c.Slots = 2 })
	f.Sh("true")
	before := f.withoutMaps()
	var mu sync.Mutex
	users := map[string]int{}
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			l, err := f.Start(f.Spec("sh", "-c", "while read n of more; do [ $n = 0 ] || echo $of; done </proc/self/uid_map; read x; echo $x"))
			if err != nil {
				t.Error(err)
				return
			}
			l.Until("\n")
			mu.Lock()
			users[strings.TrimSpace(l.Out.String())]++
			mu.Unlock()
			if _, err := l.In.WriteString("well\n"); err != nil {
				t.Error(err)
			}
			if d, err := l.End(); err != nil || !strings.HasSuffix(d.Out, "\nwell\n") {
				t.Errorf("%q, %v", d.Out, err)
			}
		})
	}
	all.Wait()
	if len(users) < 2 {
		t.Errorf("users %v", users)
	}
	eventually(t, func() string { return f.withoutMaps().above(before) })
}
