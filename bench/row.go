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
	Lacks string       // what it does not, beside corral; "" is nothing
	Run   func() error // one job, from the request to the answer
	// Serial says that Run is not for several goroutines at once.
	Serial bool
	// AtOnce is how many runs at once fit a small machine's memory; 0 is any number.
	AtOnce int
	// Missing is why the row has no figures: what is not installed, or how it failed.
	Missing string

	times []time.Duration
}

// A table makes its rows, and what is to be called after them.
type table func(*options) ([]*Row, func(), error)

// A pace is how a row is run in a round: Batch runs after a pause.
type pace struct {
	Batch int
	Pause time.Duration
}

// warmUp is how many jobs of each row, at least, are not counted.
const warmUp = 5

// measure runs rows in turn, rounds times, and keeps the times of rounds that all of them had. A row that fails is taken out
// of the table, unless it is bare. It ends early when o's time is up, and with an error when ctx ends before the first round.
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
			if ctx.Err() != nil {
				return interrupted(rows)
			}
			if err != nil {
				if n == 0 {
					return fmt.Errorf("%s: %w", r.Name, err)
				}
				r.fail(err)
				continue
			}
			if i >= warm {
				r.times = append(r.times, times...)
			}
		}
	}
	return nil
}

// interrupted is an error if nothing was measured yet.
func interrupted(rows []*Row) error {
	for _, r := range rows {
		if r.Missing == "" && len(r.times) == 0 {
			return errors.New("interrupted")
		}
	}
	return nil
}

// batch is one round of a row.
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

// fail notes why a row has no figures.
func (r *Row) fail(err error) {
	r.Missing, r.times = reason(err), nil
	fmt.Fprintf(os.Stderr, "bench: without %s: %s\n", r.Name, r.Missing)
}

// reason is an error in one line, not a long one.
func reason(err error) string { return text.Line(err.Error(), 240) }

// figures are what a table says of a row.
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

// quantile is the value that q of the values do not exceed, by the nearest rank. It is 0 of none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := append([]float64(nil), values...)
	sort.Float64s(sorted)
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

// asked says whether a row of this name was asked for.
func (o *options) asked(name string) bool {
	return strings.Contains(strings.ToLower(name), strings.ToLower(o.only))
}

// onlyRows keeps bare and the rows that were asked for.
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

// tableMode is the mode of a table: what it is kept as, and what it is called.
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

// latencies is the table of rows that were measured.
func latencies(key, title string, rows []*Row) *Result {
	r := newResult(key, title, "row", "median ms", "p95 ms", "p99 ms", "added ms", "× bare", "sets up", "does not")
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

// ours says whether a row is corral's.
func ours(name string) bool { return strings.HasPrefix(name, "corral") }

// number has three significant digits, at least one behind the point below a hundred.
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
