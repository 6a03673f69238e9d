package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"corral/internal/text"
)

// A Row is one way of running a program. The first of a table is bare.
type Row struct {
	Name  string
	Sets  string       // what it sets up
	Lacks string       // what it does not set up, unlike corral; "" means nothing
	Run   func() error // one job, from the request to the answer
	// Serial is set if Run must not be called by several goroutines at once.
	Serial bool
	// AtOnce is the number of parallel runs that fit into the memory of a small machine; 0 means any number.
	AtOnce int
	// Missing is the reason why the row has no figures: what is not installed, or how it failed.
	Missing string

	times []time.Duration
}

// A table returns its rows, and a function that cleans up after them.
type table func(*options) ([]*Row, func(), error)

// A pace defines how a row runs in a round: Batch runs after a pause.
type pace struct {
	Batch int
	Pause time.Duration
}

// warmUp is the minimum number of jobs of each row that are not counted.
const warmUp = 5

// measure runs rows in turn, for a number of rounds, and keeps the times of the rounds that all rows completed. A row that
// fails leaves the table; bare must not fail. It ends early when the time of o is over, and returns an error if ctx ends
// before the first round is complete.
func measure(ctx context.Context, o *options, rows []*Row, rounds int, p pace) error {
	warm := (warmUp + p.Batch - 1) / p.Batch
	for i := range rounds + warm {
		if o.over() && i > warm {
			return nil
		}
		for n, r := range rows {
			if r.Missing != "" {
				continue
			}
			times, err := r.batch(ctx, p)
			switch {
			case ctx.Err() != nil:
				return interrupted(rows)
			case err != nil && n == 0:
				return fmt.Errorf("%s: %w", r.Name, err)
			case err != nil:
				r.fail(err)
			case i >= warm:
				r.times = append(r.times, times...)
			}
		}
	}
	return nil
}

// interrupted returns an error if nothing was measured yet.
func interrupted(rows []*Row) error {
	for _, r := range rows {
		if r.Missing == "" && len(r.times) == 0 {
			return errors.New("interrupted")
		}
	}
	return nil
}

// batch runs one round of a row.
func (r *Row) batch(ctx context.Context, p pace) (times []time.Duration, err error) {
	time.Sleep(p.Pause)
	for range p.Batch {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		start := time.Now()
		if err := r.Run(); err != nil {
			return nil, err
		}
		times = append(times, time.Since(start))
	}
	return times, nil
}

// fail records why a row has no figures.
func (r *Row) fail(err error) {
	r.Missing, r.times = reason(err), nil
	fmt.Fprintf(os.Stderr, "bench: without %s: %s\n", r.Name, r.Missing)
}

// reason returns an error as one short line.
func reason(err error) string { return text.Line(err.Error(), 240) }

// figures are the numbers of a row in a table.
type figures struct {
	n                       int
	median, p95, p99, added float64 // milliseconds
	ratio, p95Ratio         float64 // to bare
}

// against compares the times of r with those of bare in the same rounds.
func (r *Row) against(bare *Row) figures {
	n := min(len(r.times), len(bare.times))
	if n == 0 {
		return figures{}
	}
	var all, base, ratios, added []float64
	for i := range n {
		all, base = append(all, ms(r.times[i])), append(base, ms(bare.times[i]))
		ratios, added = append(ratios, float64(r.times[i])/float64(bare.times[i])), append(added, ms(r.times[i]-bare.times[i]))
	}
	return figures{
		n: n, median: quantile(all, 0.5), p95: quantile(all, 0.95), p99: quantile(all, 0.99), added: quantile(added, 0.5),
		ratio: quantile(ratios, 0.5), p95Ratio: quantile(all, 0.95) / quantile(base, 0.95),
	}
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// quantile returns the value that a share q of the values does not exceed, by the nearest rank; 0 without values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := append([]float64(nil), values...)
	sort.Float64s(sorted)
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

// asked reports whether the command line selects a row of this name.
func (o *options) asked(name string) bool {
	return strings.Contains(strings.ToLower(name), strings.ToLower(o.only))
}

// onlyRows returns bare and the selected rows.
func (o *options) onlyRows(rows []*Row) []*Row {
	if o.only == "" {
		return rows
	}
	var kept []*Row
	for i, r := range rows {
		if i == 0 || o.asked(r.Name) {
			kept = append(kept, r)
		}
	}
	return kept
}

// tableMode returns the mode that measures a table, given its key and its title.
func tableMode(key, title string, make table) func(context.Context, *options) error {
	return func(ctx context.Context, o *options) error {
		rows, finish, err := make(o)
		if err != nil {
			return err
		}
		defer finish()
		rows = o.onlyRows(rows)
		if err := measure(ctx, o, rows, o.rounds, pace{1, o.idle}); err != nil {
			return err
		}
		return o.publish(latencies(key, title, rows))
	}
}

// latencies makes the table of the measured rows.
func latencies(key, title string, rows []*Row) *Result {
	r := newResult(key, title, "row", medianOf, "p95 ms", "p99 ms", "added ms", "× bare", setsUp, "does not")
	plot := &Plot{Title: title, Unit: "ms, median; the line goes to p95", Log: true}
	for _, row := range rows {
		if row.Missing != "" {
			r.add(row.Name, "–", "–", "–", "–", "–", row.Sets, "not measured: "+row.Missing)
			continue
		}
		f := row.against(rows[0])
		r.Rounds = max(r.Rounds, f.n)
		r.add(row.Name, number(f.median), number(f.p95), number(f.p99), signed(f.added), fmt.Sprintf("%.2f", f.ratio), row.Sets, row.Lacks)
		plot.Bars = append(plot.Bars, Bar{Label: row.Name, Value: f.median, High: f.p95, Ours: ours(row.Name)})
	}
	r.Plots = append(r.Plots, plot)
	return r
}

// ours reports whether a row belongs to corral.
func ours(name string) bool { return strings.HasPrefix(name, "corral") }

// number formats a value with three significant digits, and below a hundred with at least one decimal.
func number(v float64) string {
	switch {
	case v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func signed(v float64) string {
	if s := number(v); v < 0 {
		return s
	}
	return "+" + number(v)
}

// parallels are the numbers of jobs that run at once.
func parallels() []int { return []int{1, 2, 8, 64} }
