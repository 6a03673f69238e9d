package main

import (
	"context"
	"fmt"
	"time"

	"corral/isolate/client"
	"corral/job"
)

// levelsMode is the API at several paces, each beside bare at the same one.
func levelsMode(ctx context.Context, o *options) error {
	c, err := client.Dial(o.socket)
	if err != nil {
		return err
	}
	defer c.Close()
	const title = "A job by corral's API, beside a bare spawn at the same pace"
	r := newResult("levels", title, "pace", "bare ms", "median ms", "p95 ms", "p99 ms", "added ms", "× bare", "p95 ÷ bare's p95", "jobs")
	plot := &Plot{Title: title, Unit: "× bare, median; the line goes to p95 ÷ bare's p95"}
	for _, p := range []struct {
		name   string
		pace   pace
		rounds int
	}{
		{"16 after a pause of 300 ms", pace{16, 300 * time.Millisecond}, (o.rounds + 15) / 16},
		{"one after 30 ms idle", pace{1, 30 * time.Millisecond}, o.rounds},
		{"back to back, 100 in a row", pace{100, 0}, (o.rounds + 49) / 50},
	} {
		rows := []*Row{bare(), {Name: "corral", Run: func() error { return runJob(c, job.Spec{Repo: o.repo, Args: []string{program}}) }}}
		if err := measure(ctx, o, rows, p.rounds, p.pace); err != nil {
			return err
		}
		addLevel(r, plot, p.name, rows)
	}
	rows, err := coldRows(c, o)
	if err != nil {
		return err
	}
	addLevel(r, plot, "first job of a new repository", rows)
	r.note("Back to back, jobs outrun the slots that are made ahead; 16 after a pause find theirs ready. The first job of a repository has its jail built.")
	r.Plots = append(r.Plots, plot)
	return o.publish(r)
}

// coldRows are the first jobs of repositories.
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
