package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"corral/internal/test/logtest"
	"corral/store/index"
)

// Sizes of the texts that are indexed.
const (
	qualityBytes   = 256 << 10 // of a log with planted lines
	qualityPlanted = 48
	logBytes       = 16 << 20
	lineBytes      = 150 << 20
)

// indexRows measures package index, without a supervisor: which planted lines a search finds, and how long and how much
// memory adding large texts takes; with large, also how long a search takes in ten million lines.
func indexRows(large bool) func(context.Context, *options) error {
	return func(ctx context.Context, _ *options) error {
		dir, err := os.MkdirTemp("", "corral-bench-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		b := &indexBench{ctx: ctx, dir: dir}
		steps := []func() error{b.quality, b.bulk}
		if large {
			steps = append(steps, b.large)
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	}
}

type indexBench struct {
	ctx context.Context
	dir string
	x   *index.Index
	n   int
}

// with calls f with an empty index.
func (b *indexBench) with(f func() error) (err error) {
	b.n++
	name := filepath.Join(b.dir, strconv.Itoa(b.n))
	if err := os.Mkdir(name, 0o700); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(name) }()
	state, err := os.Open(name)
	if err != nil {
		return err
	}
	defer state.Close()
	if b.x, err = index.Open(state, index.Options{MaxBytes: 4 << 30}); err != nil {
		return err
	}
	defer func() {
		if closed := b.x.Close(); err == nil {
			err = closed
		}
	}()
	return f()
}

var benchBase = index.Base{Repo: "/repo", Principal: "bench"}

// Add implements logtest.Base.
func (b *indexBench) Add(r io.Reader) (string, error) {
	a, err := b.x.Add(b.ctx, benchBase, index.Source{Label: "execute:shell"}, r)
	return a.Name, err
}

// Find implements logtest.Base.
func (b *indexBench) Find(query, source string, limit int) ([]logtest.Hit, error) {
	f, err := b.x.Search(b.ctx, benchBase, index.Query{Text: query, Source: source, Exact: source != "", Limit: limit})
	if err != nil {
		return nil, err
	}
	hits := make([]logtest.Hit, len(f.Hits))
	for i, h := range f.Hits {
		hits[i] = logtest.Hit{Text: h.Text, Line: h.Line}
	}
	return hits, nil
}

// quality prints how many planted lines a search finds.
func (b *indexBench) quality() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KIND\tPLANTED\tINTENT ≥46\tSEARCH 48\tAFTER 10 RUNS 48\tTYPO ≥44\t")
	var missed []string
	for _, kind := range logtest.Kinds() {
		var s logtest.Score
		err := b.with(func() (err error) {
			s, err = logtest.Measure(b, kind, 1, qualityBytes, qualityPlanted)
			return err
		})
		if err != nil {
			return err
		}
		verdict := "good"
		if !s.Good() {
			verdict = "MISSES"
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%s\n", kind, s.Planted, s.Intent, s.Search, s.Later, s.Typo, verdict)
		missed = append(missed, s.Missed...)
	}
	for _, m := range missed {
		fmt.Fprintln(os.Stderr, m)
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// bulk prints what adding a large text costs.
func (b *indexBench) bulk() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ADDED\tMiB\tSECTIONS\tSECONDS\tCPU s\tMEMORY GROWS MiB\tMEANWHILE A SEARCH ms, WORST")
	for _, c := range []struct {
		name string
		r    func() io.Reader
		size int64
	}{
		{"log of services", func() io.Reader { return logtest.Noise("journal", 1) }, logBytes},
		{"JSON lines", func() io.Reader { return logtest.Noise("json lines", 1) }, logBytes},
		{"one line", func() io.Reader { return &oneLine{r: logtest.Noise("journal", 1)} }, lineBytes},
	} {
		err := b.with(func() error {
			if _, err := b.Add(io.LimitReader(logtest.Noise("csv", 1), 1<<20)); err != nil {
				return err
			}
			return b.fromFile(io.LimitReader(c.r(), c.size), func(text *os.File) error { return b.add(w, c.name, text, c.size) })
		})
		if err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// fromFile calls f with a file that has the content of r: generating it is not measured, and keeping it in memory would
// delay the garbage collector.
func (b *indexBench) fromFile(r io.Reader, f func(*os.File) error) error {
	text, err := os.CreateTemp(b.dir, "text-")
	if err != nil {
		return err
	}
	defer text.Close()
	if _, err := io.Copy(text, r); err != nil {
		return err
	}
	if _, err := text.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return f(text)
}

// oneLine reads a stream without its newlines.
type oneLine struct{ r io.Reader }

func (o *oneLine) Read(p []byte) (int, error) {
	n, err := o.r.Read(p)
	for i, c := range p[:n] {
		if c == '\n' {
			p[i] = ' '
		}
	}
	return n, err
}

// add adds a text while searches run, and prints a row about it.
func (b *indexBench) add(w io.Writer, name string, text io.Reader, size int64) error {
	m, err := startMeter()
	if err != nil {
		return err
	}
	stop, worst := make(chan struct{}), make(chan time.Duration)
	go func() {
		var most time.Duration
		for {
			select {
			case <-stop:
				worst <- most
				return
			default:
			}
			start := time.Now()
			if _, err := b.Find("ledger-db connection refused", "", 3); err != nil {
				fmt.Fprintln(os.Stderr, "bench: a search meanwhile:", err)
			}
			most = max(most, time.Since(start))
			time.Sleep(50 * time.Millisecond)
		}
	}()
	a, err := b.x.Add(b.ctx, benchBase, index.Source{Label: "execute:shell"}, text)
	close(stop)
	slowest := <-worst
	if err != nil {
		return err
	}
	wall, cpu, grown, err := m.stop()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\t%d\t%d\t%.2f\t%.2f\t%.1f\t%.1f\n", name, size>>20, a.Sections, wall.Seconds(), cpu.Seconds(),
		float64(grown)/(1<<20), ms(slowest))
	return err
}

// A meter measures time and memory of an operation.
type meter struct {
	start time.Time
	cpu   time.Duration
	rss   int64
}

func startMeter() (*meter, error) {
	debug.FreeOSMemory()
	// 5 resets VmHWM (proc_pid_clear_refs(5)).
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return nil, err
	}
	rss, err := memory("VmRSS:")
	return &meter{start: time.Now(), cpu: cpuTime(), rss: rss}, err
}

func (m *meter) stop() (wall, cpu time.Duration, grown int64, err error) {
	wall, cpu = time.Since(m.start), cpuTime()-m.cpu
	most, err := memory("VmHWM:")
	return wall, cpu, most - m.rss, err
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail with these arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memory returns a value of /proc/self/status, in bytes.
func memory(row string) (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for l := range strings.Lines(string(status)) {
		if f := strings.Fields(l); len(f) == 3 && f[0] == row {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no %s", row)
}
