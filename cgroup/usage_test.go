package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fakeJob returns a job of a layout whose sources have the given text. Sources without text are missing.
func fakeJob(t *testing.T, layout string, text map[source]string) *Job {
	t.Helper()
	g := &Job{instance: &Instance{tree: &Tree{layout: layout}}, dirs: []group{groupAt("/fake")}, fd: -1, event: -1, meter: newMeter()}
	if layout != "v1" {
		g.instance.tree.unified = "/fake"
	}
	for s, content := range text {
		file := filepath.Join(t.TempDir(), fmt.Sprint(s))
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		g.meter[s] = fd
	}
	t.Cleanup(g.meter.close)
	return g
}

// Account parses the files of all layouts, with missing and malformed ones.
func TestAccount(t *testing.T) {
	const stat = "usage_usec 3000\nuser_usec 2000\nsystem_usec 1000\nnice_usec 0\n"
	unknown := Usage{-1, -1, -1, -1, -1, -1, -1}
	disk := strings.Repeat("8:16 rbytes=1 wbytes=2 rios=1 wios=1 dbytes=0 dios=0\n", 100) // larger than the buffer
	for _, c := range []struct {
		name, layout string
		text         map[source]string
		usage        Usage
		events       Events
		err          string
	}{
		{
			"v2", "v2",
			map[source]string{
				cpuTime: stat + "nr_periods 7\n", memoryPeak: "4096\n", pidsPeak: "3\n", pidsEvents: "max 2\n",
				memoryEvents: "low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 1\n", ioBytes: "8:0\n7:0 8:32 rbytes=10 wbytes=x\n" + disk,
			},
			Usage{3 * time.Millisecond, 2 * time.Millisecond, time.Millisecond, 4096, 3, 110, 200},
			Events{OOMKills: 1, OOM: true, PIDsMax: 2},
			"",
		},
		{
			"v2 of an old kernel", "v2",
			map[source]string{cpuTime: stat, memoryEvents: "oom 1\noom_kill 0\n", ioBytes: ""},
			Usage{3 * time.Millisecond, 2 * time.Millisecond, time.Millisecond, -1, -1, 0, 0},
			Events{OOM: true},
			"",
		},
		{
			"hybrid", "hybrid",
			map[source]string{
				cpuTime: stat, memoryPeak: "4096\n", memoryEvents: "oom_kill_disable 0\nunder_oom 1\noom_kill 0\n",
			},
			Usage{3 * time.Millisecond, 2 * time.Millisecond, time.Millisecond, 4096, -1, -1, -1},
			Events{},
			"",
		},
		{
			"v1", "v1",
			map[source]string{cpuTime: "9\n", cpuUser: "5\n", cpuSystem: "4\n", memoryEvents: "oom_kill 3\n"},
			Usage{9, 5, 4, -1, -1, -1, -1},
			Events{OOMKills: 3, OOM: true},
			"",
		},
		{"no time", "v2", map[source]string{memoryEvents: "oom_kill 0\n"}, unknown, Events{}, "cpu.stat"},
		{"no count", "v1", map[source]string{memoryEvents: "under_oom 0\n", pidsEvents: "max 1\n"}, unknown, Events{PIDsMax: 1}, "oom_kill"},
		{"not numbers", "v1", map[source]string{cpuTime: "x\n", memoryPeak: "", pidsPeak: "9223372036854775808\n", memoryEvents: "oom_kill 0\n"}, unknown, Events{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := fakeJob(t, c.layout, c.text)
			for range 2 { // each call reads the files again
				u, e, err := g.Account()
				if u != c.usage || e != c.events {
					t.Errorf("got %+v, %+v, want %+v, %+v", u, e, c.usage, c.events)
				}
				if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
			}
		})
	}
}

// A source that stays open returns current values.
func TestMeterIsFresh(t *testing.T) {
	everywhere(t, func(t *testing.T, s setting) {
		g := newJob(t, newJail(t, newInstance(t, s)), "job", Limits{PIDs: 10})
		before, _, err := g.Account()
		if err != nil {
			t.Fatal(err)
		}
		r := start(t, g, "spin")
		r.line()
		until(t, "CPU time and memory in use", func() bool {
			u, _, err := g.Account()
			return err == nil && u.CPU > before.CPU && (u.PeakMemory == -1 || u.PeakMemory > before.PeakMemory)
		})
		kill(t, g, r)
		if g.meter != newMeter() {
			t.Errorf("descriptors left open: %v", g.meter)
		}
	})
}
