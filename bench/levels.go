package main

import (
	"context"
	"fmt"
	"time"

	"corral/isolate/client"
	"corral/job"
)

// levelsMode measures the API at several paces, next to a bare spawn at the same pace.
func levelsMode(ctx context.Context, o *options) error {
	const title = "A job by corral's API, beside a bare spawn at the same pace"
	r := newResult("levels", title, "pace", "bare ms", "median ms", "p95 ms", "p99 ms", "added ms", "× bare", "p95 ÷ bare's p95", "jobs")
	plot := &Plot{Title: title, Unit: "× bare, median; the line goes to p95 ÷ bare's p95"}
	idle := level{"one after 30 ms idle", pace{1, 30 * time.Millisecond}, o.rounds}
	err := o.part(ctx, o.colds, func(ctx context.Context, o *options, c *client.Client) error {
		for _, l := range []level{
			{"16 after a pause of 300 ms", pace{16, 300 * time.Millisecond}, (o.rounds + 15) / 16},
			idle,
			{"back to back, 100 in a row", pace{100, 0}, (o.rounds + 49) / 50},
		} {
			if err := l.measure(ctx, o, c, r, plot); err != nil {
				return err
			}
		}
		rows, err := coldRows(c, o)
		if err != nil {
			return err
		}
		addLevel(r, plot, "first job of a new repository", rows)
		return nil
	})
	if err != nil {
		return err
	}
	none := *o
	none.slotless = true
	idle.name += ", no slot"
	err = none.part(ctx, 1, func(ctx context.Context, o *options, c *client.Client) error {
		return idle.measure(ctx, o, c, r, plot)
	})
	if err != nil {
		return err
	}
	r.note("Back to back, jobs outrun the slots that are made ahead; 16 after a pause find theirs ready. The first job of a repository has its jail built. Without a slot (`warm_slots: 0`) a job has all but the jail made when it comes.")
	r.Plots = append(r.Plots, plot)
	return o.publish(r)
}

// A level is a pace at which jobs are sent.
type level struct {
	name   string
	pace   pace
	rounds int
}

func (l level) measure(ctx context.Context, o *options, c *client.Client, r *Result, plot *Plot) error {
	rows := []*Row{bare(), {Name: "corral", Run: func() error { return runJob(c, job.Spec{Repo: o.repo, Args: []string{program}}) }}}
	if err := measure(ctx, o, rows, l.rounds, l.pace); err != nil {
		return err
	}
	addLevel(r, plot, l.name, rows)
	return nil
}

// coldRows measures first jobs of repositories.
func coldRows(c *client.Client, o *options) ([]*Row, error) {
	rows := []*Row{bare(), {Name: "corral"}}
	for _, repo := range o.cold {
		rows[1].Run = func() error { return runJob(c, job.Spec{Repo: repo, Args: []string{program}}) }
		for _, r := range rows {
			times, err := r.batch(context.Background(), pace{1, 0})
			if err != nil {
				return nil, err
			}
			r.times = append(r.times, times...)
		}
	}
	return rows, nil
}

func addLevel(r *Result, plot *Plot, name string, rows []*Row) {
	base, f := rows[0].against(rows[0]), rows[1].against(rows[0])
	if f.n == 0 {
		r.add(name, "–", "–", "–", "–", "–", "–", "–", "not measured: "+rows[1].Missing)
		return
	}
	r.add(name, number(base.median), number(f.median), number(f.p95), number(f.p99), signed(f.added),
		fmt.Sprintf("%.2f", f.ratio), fmt.Sprintf("%.2f", f.p95Ratio), fmt.Sprint(f.n))
	plot.Bars = append(plot.Bars, Bar{Label: name, Value: f.ratio, High: f.p95Ratio, Ours: true})
}
