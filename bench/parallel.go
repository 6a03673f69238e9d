package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// maxSlices is the maximum number of slices for each row and number of jobs.
const maxSlices = 5

// A rate has the results of a row with one number of jobs at once, in all slices.
type rate struct {
	perSecond, cpu []float64
	failed         error
}

// rates are the results of rows, by the number of jobs at once.
type rates map[*Row]map[int]*rate

// parallelMode counts jobs in slices of time, with rows and numbers of jobs in turn.
func parallelMode(ctx context.Context, o *options) error {
	rows, finish, err := peerRows(o)
	if err != nil {
		return err
	}
	defer finish()
	rows = o.onlyRows(rows)
	rates := rates{}
	for range min(o.rounds, maxSlices) {
		for _, n := range parallels() {
			for _, r := range rows {
				if o.over() || ctx.Err() != nil {
					return o.publish(rateTable(rows, rates))
				}
				if r.Missing == "" && r.mayRun(n) {
					rates.slice(ctx, r, n, o.slice)
				}
			}
		}
	}
	return o.publish(rateTable(rows, rates))
}

// mayRun reports whether n jobs of the row may run at once.
func (r *Row) mayRun(n int) bool { return (!r.Serial || n == 1) && (r.AtOnce == 0 || n <= r.AtOnce) }

// slice counts a row's jobs for a while, n at once, unless the row failed before.
func (s rates) slice(ctx context.Context, r *Row, n int, d time.Duration) {
	if s[r] == nil {
		s[r] = map[int]*rate{}
	}
	if s[r][n] == nil {
		s[r][n] = &rate{failed: r.Run()} // the first call, which may open a session, is not counted
	}
	if t := s[r][n]; t.failed == nil {
		t.failed = t.slice(ctx, r, n, d)
	}
}

// slice runs a row's job repeatedly in n goroutines, for a while.
func (t *rate) slice(ctx context.Context, r *Row, n int, d time.Duration) error {
	var done, failed atomic.Int64
	var group sync.WaitGroup
	errs := make([]error, n)
	before, err := busyTime()
	if err != nil {
		return err
	}
	start := time.Now()
	for i := range n {
		group.Go(func() {
			for time.Since(start) < d && ctx.Err() == nil && failed.Load() == 0 {
				if errs[i] = r.Run(); errs[i] != nil {
					failed.Add(1)
					return
				}
				done.Add(1)
			}
		})
	}
	group.Wait()
	took := time.Since(start)
	after, err := busyTime()
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	t.perSecond = append(t.perSecond, float64(done.Load())/took.Seconds())
	t.cpu = append(t.cpu, ms(after-before)/float64(max(done.Load(), 1)))
	return nil
}

func rateTable(rows []*Row, rates rates) *Result {
	const title = "Jobs a second, by how many run at once"
	r := newResult("parallel", title, "row", "1", "2", "8", "64", "× bare at 8", "CPU ms a job at 1", "CPU ms a job at 8", setsUp,
		"does not")
	plot := &Plot{Title: title + ": 8", Unit: "jobs a second, median", Log: true}
	at := func(row *Row, n int) (perSecond, cpu float64) {
		if t := rates[row][n]; t != nil && t.failed == nil {
			return quantile(t.perSecond, 0.5), quantile(t.cpu, 0.5)
		}
		return 0, 0
	}
	figure := func(v float64) string {
		if v == 0 {
			return "–"
		}
		return number(v)
	}
	bare8, _ := at(rows[0], 8)
	for _, row := range rows {
		cells := []string{row.Name}
		for _, n := range parallels() {
			v, _ := at(row, n)
			cells = append(cells, figure(v))
		}
		v8, cpu8 := at(row, 8)
		_, cpu1 := at(row, 1)
		ratio := "–"
		if v8 > 0 && bare8 > 0 {
			ratio = fmt.Sprintf("%.3f", v8/bare8)
			plot.Bars = append(plot.Bars, Bar{Label: row.Name, Value: v8, Ours: ours(row.Name)})
		}
		lacks := row.Lacks
		if row.Missing != "" {
			lacks = "not measured: " + row.Missing
		}
		r.add(append(cells, ratio, figure(cpu1), figure(cpu8), row.Sets, lacks)...)
	}
	r.note("CPU time is what the whole machine took for anything, servers and clearing up included (`/proc/stat`), divided by the jobs: others' work is in it.")
	r.note("No figure: the server takes one call at a time as it is driven here, or so many at once need more memory than a small machine has.")
	for _, row := range rows {
		for _, n := range parallels() {
			if t := rates[row][n]; t != nil && t.failed != nil {
				r.note("%s, %d at once: %s", row.Name, n, reason(t.failed))
			}
		}
	}
	r.Plots = append(r.Plots, plot)
	return r
}
