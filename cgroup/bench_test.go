package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"corral/cgroup/group"
)

var benchLimits = Limits{MemoryBytes: 64 << 20, MilliCPUs: 500, PIDs: 10}

// inEach runs a benchmark in each setting, in a jail without a first process.
func inEach(b *testing.B, f func(b *testing.B, j *Jail)) {
	for _, s := range settings(b) {
		b.Run(strings.ReplaceAll(s.name, " ", "_"), func(b *testing.B) { f(b, bareJail(b, newInstance(b, s))) })
	}
}

// A stopwatch times single steps of a benchmark's loop.
type stopwatch struct{ times map[string][]time.Duration }

func (w *stopwatch) time(b *testing.B, step string, f func() error) {
	b.Helper()
	start := time.Now()
	err := f()
	w.add(step, time.Since(start))
	if err != nil {
		b.Fatal(err)
	}
}

func (w *stopwatch) add(step string, d time.Duration) {
	if w.times == nil {
		w.times = map[string][]time.Duration{}
	}
	w.times[step] = append(w.times[step], d)
}

// report reports the median of each step, and hides the time of the whole loop.
func (w *stopwatch) report(b *testing.B) {
	for step, times := range w.times {
		b.ReportMetric(float64(median(times))/1000, "µs-"+step)
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkJob measures what each slot costs, including the out-of-memory watch.
func BenchmarkJob(b *testing.B) {
	inEach(b, func(b *testing.B, j *Jail) {
		var w stopwatch
		b.ReportAllocs()
		for b.Loop() {
			var g *Job
			w.time(b, "create", func() (err error) { g, err = j.Job("job", benchLimits); return err })
			w.time(b, "watch", func() error { return g.WatchOOM(func() {}) })
			w.time(b, "remove", func() error { return g.Remove() })
		}
		w.report(b)
	})
}

// BenchmarkStep measures the calls while a job runs and at its end.
func BenchmarkStep(b *testing.B) {
	steps := []struct {
		name string
		do   func(b *testing.B, g *Job) error
	}{
		{"account", func(_ *testing.B, g *Job) error { _, _, err := g.Account(); return err }},
		{"kill", func(_ *testing.B, g *Job) error { return g.Kill() }},
	}
	inEach(b, func(b *testing.B, j *Jail) {
		for _, step := range steps {
			b.Run(step.name, func(b *testing.B) {
				g := newJob(b, j, "job", benchLimits)
				b.ReportAllocs()
				for b.Loop() {
					if err := step.do(b, g); err != nil {
						b.Fatal(err)
					}
				}
				if err := g.Remove(); err != nil {
					b.Fatal(err)
				}
			})
		}
	})
}

// BenchmarkIdle measures the memory and goroutines that 500 idle jobs take in this process.
func BenchmarkIdle(b *testing.B) {
	const jobs = 500
	inUse := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc + m.StackInuse)
	}
	inEach(b, func(b *testing.B, j *Jail) {
		for b.Loop() {
			before, goroutines := inUse(), runtime.NumGoroutine()
			list := make([]*Job, jobs)
			for n := range list {
				list[n] = newJob(b, j, "job-"+string(rune('a'+n%26))+strings.Repeat("x", n/26), benchLimits)
				if err := list[n].WatchOOM(func() {}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((inUse()-before)/jobs, "B/job")
			b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/jobs, "goroutines/job")
			for _, g := range list {
				if err := g.Remove(); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

// BenchmarkAttach moves a process into the groups that it was not started in: without pauses, after a pause as
// between two jobs, and with the process joining by itself.
func BenchmarkAttach(b *testing.B) {
	inEach(b, func(b *testing.B, j *Jail) {
		for _, c := range []struct {
			name  string
			pause time.Duration
			self  bool
		}{{"hot", 0, false}, {"rested", 30 * time.Millisecond, false}, {"rested_itself", 30 * time.Millisecond, true}} {
			b.Run(c.name, func(b *testing.B) {
				var w stopwatch
				for b.Loop() {
					g := newJob(b, j, "job", benchLimits)
					if c.self {
						attachThread(b, &w, g, c.pause)
					} else {
						attachProgram(b, &w, g, c.pause)
					}
					if err := g.Remove(); err != nil {
						b.Fatal(err)
					}
				}
				w.report(b)
			})
		}
	})
}

// attachProgram times the attach of a process, then kills it.
func attachProgram(b *testing.B, w *stopwatch, g *Job, pause time.Duration) {
	b.Helper()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: g.Dir() >= 0, CgroupFD: g.Dir()}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	time.Sleep(pause)
	w.time(b, "attach", func() error { return g.Attach(cmd.Process.Pid) })
	if err := g.Kill(); err != nil {
		b.Fatal(err)
	}
	_ = cmd.Wait()
}

// attachThread times a thread that joins the groups by itself.
func attachThread(b *testing.B, w *stopwatch, g *Job, pause time.Duration) {
	b.Helper()
	files, err := g.Tasks()
	if err != nil || len(files) == 0 {
		b.Skip("no group to join: ", err)
	}
	time.Sleep(pause)
	err = onThread(func() error {
		start := time.Now()
		for _, f := range files {
			_, err := f.WriteString("0")
			f.Close()
			if err != nil {
				return err
			}
		}
		w.add("attach", time.Since(start))
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// onThread calls f on a thread of its own, which then ends and so leaves its groups.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			done <- onThread(f) // try again: the process's first thread never ends
			runtime.UnlockOSThread()
			return
		}
		done <- f()
	}()
	return <-done
}

// BenchmarkKill kills a thousand sleeping processes, or as many copies of this program as 500 chains of constant
// forking keep alive, which have more memory to free, and waits until they have ended.
func BenchmarkKill(b *testing.B) {
	for _, what := range []string{"crowd", "swarm"} {
		inEach(b, func(b *testing.B, j *Jail) {
			b.Run(what, func(b *testing.B) {
				var w stopwatch
				processes := 0
				for b.Loop() {
					g := newJob(b, j, "job", Limits{PIDs: 1100})
					r := start(b, g, what)
					r.line()
					if what == "swarm" {
						time.Sleep(500 * time.Millisecond)
					}
					pids, err := group.At(g.dirs[0].Path).Processes()
					if err != nil {
						b.Fatal(err)
					}
					processes = max(processes, len(pids))
					begin := time.Now()
					w.time(b, "kill", g.Kill)
					err = waitEmpty(g, time.Minute)
					w.add("gone", time.Since(begin))
					_ = r.cmd.Wait()
					if err := errors.Join(err, g.Remove()); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(processes), "processes")
				w.report(b)
			})
		})
	}
}

// BenchmarkAvoided measures containerd's calls for the same work, which this package avoids.
func BenchmarkAvoided(b *testing.B) {
	s := settings(b)[0]
	j := bareJail(b, newInstance(b, s))
	g := newJob(b, j, "job", benchLimits)
	group := filepath.Join("/", s.tree.base, s.tree.top, j.instance.name, j.name, "job")
	stat, cycle := avoidedV1, avoidedNewV1
	if s.tree.layout == "v2" {
		stat, cycle = avoidedV2, avoidedNewV2
	}
	b.Run("stat", func(b *testing.B) {
		for b.Loop() {
			if err := stat(s.tree, group); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("new and delete", func(b *testing.B) {
		for b.Loop() {
			if err := cycle(s.tree, group+"2"); err != nil {
				b.Fatal(err)
			}
		}
	})
	if err := g.Remove(); err != nil {
		b.Fatal(err)
	}
}

// containerdV1 limits containerd to the v1 controllers that this package uses. The hierarchies must be mounted side
// by side.
func containerdV1(tree *Tree) cgroup1.InitOpts {
	root := filepath.Dir(tree.v1["memory"])
	return cgroup1.WithHierarchy(func() ([]cgroup1.Subsystem, error) {
		return []cgroup1.Subsystem{cgroup1.NewPids(root), cgroup1.NewMemory(root), cgroup1.NewCpu(root)}, nil
	})
}

func avoidedV1(tree *Tree, group string) error {
	c, err := cgroup1.Load(cgroup1.StaticPath(group), containerdV1(tree))
	if err == nil {
		_, err = c.Stat()
	}
	return err
}

func avoidedNewV1(tree *Tree, group string) error {
	quota, _ := benchLimits.quota()
	memory, pids := benchLimits.MemoryBytes, benchLimits.PIDs
	c, err := cgroup1.New(cgroup1.StaticPath(group), &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: &memory, Swap: &memory},
		CPU:    &specs.LinuxCPU{Quota: &quota},
		Pids:   &specs.LinuxPids{Limit: &pids},
	}, containerdV1(tree))
	if err != nil {
		return err
	}
	return c.Delete()
}

func avoidedV2(tree *Tree, group string) error {
	m, err := cgroup2.Load(group, cgroup2.WithMountpoint(tree.unified))
	if err == nil {
		_, err = m.Stat()
	}
	return err
}

func avoidedNewV2(tree *Tree, group string) error {
	m, err := cgroup2.NewManager(tree.unified, group, benchLimits.v2(true, false))
	if err != nil {
		return err
	}
	return m.Delete()
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}
