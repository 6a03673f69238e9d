package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"corral/isolate/client"
	"corral/job"
)

// Sizes of the steps of curves.
const (
	window      = 100 // consecutive jobs whose median is a point of the curve
	windowBare  = 10  // bare spawns before them
	stepAtOnce  = 25  // sleeping jobs
	sharedRepos = 8   // repositories of sleeping jobs: a jail has users for 512
	ofClient    = 200 // sleeping jobs of one connection, which may have 256
	warmJobs    = 5   // in each of many repositories, after the first

	freshWindows = 10 // of a supervisor that has just started, next to an older one
)

// settling is the pause after a jail was built or a job has ended, in which the next slot is made.
const settling = 100 * time.Millisecond

// scaleMode measures many jobs: in a row, at once, and in many repositories. Each part has a supervisor of its own and
// stores its curve, even if the next one fails.
func scaleMode(ctx context.Context, o *options) error {
	var failed []error
	for _, part := range []struct {
		name  string
		repos int
		run   func(context.Context, *options, *client.Client) error
	}{{"row", 1, scaleRow}, {"once", sharedRepos, scaleOnce}, {"repos", o.repos, scaleRepos}} {
		if o.only != "" && o.only != part.name || ctx.Err() != nil {
			continue
		}
		if err := o.part(ctx, part.repos, part.run); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", part.name, err))
		}
	}
	return errors.Join(append(failed, ctx.Err())...)
}

// part runs a part of a mode with a supervisor of its own; o.cold gets the given number of repositories beside o.repo.
func (o *options) part(ctx context.Context, repos int, run func(context.Context, *options, *client.Client) error) error {
	own := *o
	own.colds = repos
	if own.limit > 0 {
		own.until = time.Now().Add(own.limit)
	}
	finish, err := own.prepare()
	defer finish()
	if err != nil {
		return err
	}
	c, err := client.Dial(own.socket)
	if err != nil {
		return err
	}
	defer c.Close()
	return run(ctx, &own, c)
}

// medianOf runs f n times, each after a pause, and returns the median in milliseconds.
func medianOf(ctx context.Context, n int, pause time.Duration, f func() error) (float64, error) {
	r := &Row{Run: f}
	var all []float64
	for range n {
		times, err := r.batch(ctx, pace{1, pause})
		if err != nil {
			return 0, err
		}
		for _, t := range times {
			all = append(all, ms(t))
		}
	}
	return quantile(all, 0.5), nil
}

// scaleRow runs many jobs one after the other: the last must cost as much as the first.
func scaleRow(ctx context.Context, o *options, c *client.Client) error {
	const title = "Jobs in a row"
	run := func() error { return runJob(c, job.Spec{Repo: o.repo, Args: []string{program}}) }
	corral, base := Curve{Label: "corral, median of 100"}, Curve{Label: "bare spawn", Dashed: true}
	memory := Curve{Label: "unshared MiB of corral"}
	for done := 0; done < o.jobs && !o.over() && ctx.Err() == nil; done += window {
		b, err := medianOf(ctx, windowBare, 0, command(program))
		if err != nil {
			break
		}
		m, err := medianOf(ctx, window, 0, run)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return fmt.Errorf("after %d jobs: %w", done, err)
		}
		x := float64(done + window)
		base.X, base.Y = append(base.X, x), append(base.Y, b)
		corral.X, corral.Y = append(corral.X, x), append(corral.Y, m)
		if done%(10*window) == 0 {
			f, err := o.footprint()
			if err != nil {
				return err
			}
			memory.X, memory.Y = append(memory.X, x), append(memory.Y, float64(f.private+f.supervisor)/(1<<20))
		}
	}
	if len(corral.Y) < 2 {
		return errors.New("interrupted before the second window of 100")
	}
	r := newResult("scale-row", title, "jobs", "bare ms", "corral ms", "× bare", "unshared MiB")
	at := func(from, to int, name string) float64 {
		b, m := quantile(base.Y[from:to], 0.5), quantile(corral.Y[from:to], 0.5)
		i := min(from/10, len(memory.Y)-1)
		r.add(name, number(b), number(m), fmt.Sprintf("%.2f", m/b), number(memory.Y[i]))
		return m / b
	}
	n := len(corral.Y)
	part := max(1, min(10, n/2))
	first := at(0, part, fmt.Sprintf("the first %d", part*window))
	at(n/2-part/2, n/2-part/2+part, "in the middle")
	last := at(n-part, n, fmt.Sprintf("the last %d of %d", part*window, n*window))
	r.note("The last jobs cost %.2f times what the first did, each against the bare spawns beside them.", last/first)
	if aged, fresh, err := besideFresh(ctx, o, run); err != nil {
		r.note("In turn with a supervisor that had just started: not measured: %v", err)
	} else {
		r.note("After them, in turn with a supervisor that had just started, 100 by 100: %s ms there, %s ms with this one, %.2f times as long.",
			number(fresh), number(aged), aged/fresh)
	}
	r.Plots = []*Plot{
		{Title: title, Unit: "ms, median", XLabel: "jobs so far", Curves: []Curve{corral, base}},
		{Title: "Memory over jobs in a row", Unit: "MiB", XLabel: "jobs so far", Curves: []Curve{memory}},
	}
	return o.publish(r)
}

// besideFresh runs jobs in turn with run and on a supervisor that has just started, so that load of the machine affects both
// alike. It returns both medians, in milliseconds.
func besideFresh(ctx context.Context, o *options, run func() error) (aged, fresh float64, err error) {
	var medians [2][]float64
	err = o.part(ctx, 1, func(ctx context.Context, o *options, c *client.Client) error {
		spec := job.Spec{Repo: o.repo, Args: []string{program}}
		for i, f := range slices.Repeat([]func() error{run, func() error { return runJob(c, spec) }}, 1+freshWindows) {
			m, err := medianOf(ctx, window, 0, f)
			if err != nil {
				return err
			}
			if i > 1 { // the new supervisor first learns how many slots are needed
				medians[i%2] = append(medians[i%2], m)
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return 0, 0, err
	}
	return quantile(medians[0], 0.5), quantile(medians[1], 0.5), nil
}

// scaleOnce starts more and more sleeping jobs.
func scaleOnce(ctx context.Context, o *options, c *client.Client) error {
	const title = "Jobs at once"
	clients, hangUp, err := dialFor(o, c)
	defer hangUp()
	if err != nil {
		return err
	}
	var s sleepers
	defer s.end()
	for _, repo := range o.cold { // builds the jails
		if err := runJob(c, job.Spec{Repo: repo, Args: []string{program}}); err != nil {
			return err
		}
	}
	start, err := o.settled()
	if err != nil {
		return err
	}
	latency, base := Curve{Label: "until a job is heard, median of 25"}, Curve{Label: "bare spawn", Dashed: true}
	memory, gone := Curve{Label: "unshared MiB of all"}, Curve{Label: "gone from MemAvailable, MiB"}
	var why error
	for n := 0; n < o.atOnce && !o.over() && ctx.Err() == nil && why == nil; n += stepAtOnce {
		b, err := medianOf(ctx, windowBare, 0, command(program))
		if err != nil {
			break
		}
		var all []float64
		if all, why = s.startStep(ctx, o, clients, n); len(all) == 0 {
			break
		}
		f, err := o.footprint()
		if err != nil {
			return err
		}
		x := float64(n + len(all))
		latency.X, latency.Y = append(latency.X, x), append(latency.Y, quantile(all, 0.5))
		base.X, base.Y = append(base.X, x), append(base.Y, b)
		memory.X, memory.Y = append(memory.X, x), append(memory.Y, float64(f.private+f.supervisor)/(1<<20))
		gone.X, gone.Y = append(gone.X, x), append(gone.Y, float64(start.available-f.available)/(1<<20))
	}
	if len(latency.Y) == 0 {
		return errors.Join(why, ctx.Err(), errors.New("no job was begun"))
	}
	began := time.Now()
	s.end()
	killed := time.Since(began)
	r := newResult("scale-once", title, "running", "bare ms", "until heard ms", "× bare", "unshared MiB", "gone from MemAvailable, MiB")
	for _, i := range []int{0, len(latency.Y) / 2, len(latency.Y) - 1} {
		r.add(fmt.Sprint(latency.X[i]), number(base.Y[i]), number(latency.Y[i]), fmt.Sprintf("%.2f", latency.Y[i]/base.Y[i]),
			number(memory.Y[i]), number(gone.Y[i]))
	}
	r.note("Each is a shell that says a line and then sleeps, in one of %d repositories. All of them were ended within %.0f ms of being asked to.", len(o.cold), ms(killed))
	if why != nil {
		r.note("It ended early: %s", reason(why))
	}
	r.Plots = []*Plot{
		{Title: title, Unit: "ms", XLabel: "jobs running", Curves: []Curve{latency, base}},
		{Title: "Memory of jobs at once", Unit: "MiB", XLabel: "jobs running", Curves: []Curve{memory, gone}},
	}
	return o.publish(r)
}

// dialFor returns c and as many more clients as o.atOnce jobs need, and a function that closes those.
func dialFor(o *options, c *client.Client) (clients []*client.Client, hangUp func(), err error) {
	clients = []*client.Client{c}
	for err == nil && len(clients) <= (o.atOnce-1)/ofClient {
		var more *client.Client
		if more, err = client.Dial(o.socket); err == nil {
			clients = append(clients, more)
		}
	}
	return clients, func() {
		for _, more := range clients[1:] {
			more.Close()
		}
	}, err
}

// startStep starts stepAtOnce jobs, or as many as o.atOnce leaves, after n others. It returns how long each took until it was
// heard, in milliseconds, and the error that ended it early.
func (s *sleepers) startStep(ctx context.Context, o *options, clients []*client.Client, n int) (all []float64, err error) {
	for i := n; i < min(n+stepAtOnce, o.atOnce); i++ {
		d, err := s.start(ctx, clients[i/ofClient], o.cold[i%len(o.cold)])
		if err != nil {
			return all, fmt.Errorf("job %d: %w", i+1, err)
		}
		all = append(all, ms(d))
	}
	return all, nil
}

// scaleRepos runs a first job and some more in each of many repositories, and all jails stay.
func scaleRepos(ctx context.Context, o *options, c *client.Client) error {
	const title = "Repositories"
	first, base := Curve{Label: "first job"}, Curve{Label: "bare spawn", Dashed: true}
	warm, idle := Curve{Label: "warm job, after a pause"}, Curve{Label: "bare spawn, after a pause", Dashed: true}
	memory := Curve{Label: "unshared MiB of corral"}
	for i, repo := range o.cold {
		if o.over() || ctx.Err() != nil {
			break
		}
		spec := job.Spec{Repo: repo, Args: []string{program}}
		run := func() error { return runJob(c, spec) }
		b, err := medianOf(ctx, windowBare, 0, command(program))
		f, err2 := medianOf(ctx, 1, 0, run)
		w, err3 := medianOf(ctx, warmJobs, settling, run)
		wb, err4 := medianOf(ctx, warmJobs, settling, command(program))
		if ctx.Err() != nil {
			break
		}
		if err := errors.Join(err, err2, err3, err4); err != nil {
			return fmt.Errorf("repository %d: %w", i+1, err)
		}
		x := float64(i + 1)
		for _, p := range []struct {
			curve *Curve
			y     float64
		}{{&base, b}, {&first, f}, {&warm, w}, {&idle, wb}} {
			p.curve.X, p.curve.Y = append(p.curve.X, x), append(p.curve.Y, p.y)
		}
		if i%10 == 9 {
			fp, err := o.footprint()
			if err != nil {
				return err
			}
			memory.X, memory.Y = append(memory.X, x), append(memory.Y, float64(fp.private+fp.supervisor)/(1<<20))
		}
	}
	n := len(first.Y)
	if n < 2 {
		return errors.New("interrupted before the second repository")
	}
	r := newResult("scale-repos", title, "repositories", "bare ms", "first job ms", "× bare", "bare after 100 ms", "warm job ms", "× bare")
	part := max(1, min(10, n/2))
	for _, s := range []struct {
		name     string
		from, to int
	}{{fmt.Sprintf("the first %d", part), 0, part}, {fmt.Sprintf("the last %d of %d", part, n), n - part, n}} {
		at := func(c Curve) float64 { return quantile(c.Y[s.from:s.to], 0.5) }
		r.add(s.name, number(at(base)), number(at(first)), fmt.Sprintf("%.2f", at(first)/at(base)),
			number(at(idle)), number(at(warm)), fmt.Sprintf("%.2f", at(warm)/at(idle)))
	}
	r.Plots = []*Plot{{Title: title, Unit: "ms", Log: true, XLabel: "repositories with a jail", Curves: []Curve{first, base, warm, idle}}}
	if len(memory.Y) > 1 {
		r.Plots = append(r.Plots, &Plot{
			Title: "Memory over repositories", Unit: "MiB", XLabel: "repositories with a jail",
			Curves: []Curve{memory},
		})
	}
	if _, err := os.Stat(o.socket); err != nil {
		r.note("The supervisor has gone meanwhile.")
	}
	return o.publish(r)
}
