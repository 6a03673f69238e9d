package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A release is a build of corral with a supervisor of its own. Its place starts all of its processes, whose CPU time cpu counts.
type release struct {
	*place
	o     options
	cpu   int // descriptor
	close []func()
	rows  []*Row
	spent map[*Row][]float64 // CPU milliseconds per job, by round
}

// versionJobs is the number of jobs of a round, after which what is done for the next one has versionPause.
const (
	versionJobs  = 10
	versionPause = 30 * time.Millisecond
)

// versionsMode measures jobs of these programs beside those of -base, round by round: time, and CPU time of all processes.
func versionsMode(ctx context.Context, o *options) error {
	if o.base == "" {
		return errors.New("no programs to compare with: -base DIR, such as the bin of a clone of an older commit")
	}
	var all []*release
	defer func() {
		for _, v := range all {
			v.finish()
		}
	}()
	for _, bin := range []string{o.base, o.bin} {
		v, err := newRelease(o, bin)
		if v != nil {
			all = append(all, v)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", bin, err)
		}
	}
	for n := -1; n < o.rounds && ctx.Err() == nil && (n <= 0 || !o.over()); n++ { // the first round is not counted
		for i := range all[0].rows {
			for _, v := range all {
				if err := v.round(ctx, v.rows[i], n >= 0); err != nil {
					return fmt.Errorf("%s: %s: %w", v.o.bin, v.rows[i].Name, err)
				}
			}
		}
	}
	return o.publish(compareVersions(all[0], all[1]))
}

func newRelease(o *options, bin string) (*release, error) {
	v := &release{place: newPlace(), o: *o, cpu: -1, spent: map[*Row][]float64{}}
	v.o.bin = bin
	return v, v.do(func() error {
		if err := v.countCPU(); err != nil {
			return err
		}
		finish, err := v.o.prepare()
		v.close = append(v.close, finish)
		if err != nil {
			return err
		}
		server, err := v.o.front("exec-server")
		if err != nil {
			return err
		}
		v.close = append(v.close, server.close)
		calls, err := callRows(server, "command/exec", v.o.repo, "", "")
		if err != nil {
			return err
		}
		run := func(name string, more ...string) *Row {
			args := append([]string{filepath.Join(bin, "corral"), "run", "--repo", v.o.repo}, more...)
			s := &spawn{args: append(args, "--", program), place: v.place}
			return &Row{Name: name, Run: s.run()}
		}
		for _, r := range []*Row{calls[0], run("corral run, by the socket", "--supervisor", v.o.socket), run("corral run, alone")} {
			if o.asked(r.Name) {
				v.rows = append(v.rows, r)
			}
		}
		return nil
	})
}

func (v *release) finish() {
	for i := len(v.close) - 1; i >= 0; i-- {
		v.close[i]()
	}
	if v.cpu >= 0 {
		unix.Close(v.cpu)
	}
	v.place.close()
}

// countCPU counts the CPU time of the thread that calls it and of all processes that it starts from then on, and theirs.
func (v *release) countCPU() (err error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK, Bits: unix.PerfBitInherit,
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
	}
	if v.cpu, err = unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC); err != nil {
		return fmt.Errorf("perf_event_open: %w", err)
	}
	return nil
}

func (v *release) spentCPU() (time.Duration, error) {
	var b [8]byte
	if n, err := unix.Read(v.cpu, b[:]); n != len(b) {
		return 0, fmt.Errorf("read the CPU time: %d bytes, %w", n, err)
	}
	return time.Duration(binary.NativeEndian.Uint64(b[:])), nil
}

// round runs jobs of a row in a row.
func (v *release) round(ctx context.Context, r *Row, counts bool) error {
	before, err := v.spentCPU()
	if err != nil {
		return err
	}
	times, err := r.batch(ctx, pace{Batch: versionJobs})
	if err != nil {
		return err
	}
	time.Sleep(versionPause)
	after, err := v.spentCPU()
	if err == nil && counts {
		r.times = append(r.times, times...)
		v.spent[r] = append(v.spent[r], ms(after-before)/versionJobs)
	}
	return err
}

func compareVersions(base, now *release) *Result {
	r := newResult("versions", "Jobs of two versions in turn", "row", "base ms", "now ms", "ratio", "ratio at p10", "base CPU ms",
		"now CPU ms", "ratio", "ratio at p10")
	for i, row := range now.rows {
		old := base.rows[i]
		r.Rounds = len(now.spent[row])
		cells := []string{row.Name}
		for _, pair := range [][2][]float64{{millis(old.times), millis(row.times)}, {base.spent[old], now.spent[row]}} {
			a, b := pair[0], pair[1]
			var ratios []float64
			for n := range min(len(a), len(b)) {
				ratios = append(ratios, b[n]/a[n])
			}
			cells = append(cells, number(quantile(a, 0.5)), number(quantile(b, 0.5)), fmt.Sprintf("%.3f", quantile(ratios, 0.5)),
				fmt.Sprintf("%.3f", quantile(b, 0.1)/quantile(a, 0.1)))
		}
		r.add(cells...)
	}
	r.note("Alone: corral run starts a supervisor of its own, and ends it.")
	r.note("Ratios are medians of those in the same round, and of the times that a tenth of the rounds stay below. CPU time is that of all processes of a version, the supervisor's and the jail's included.")
	return r
}
