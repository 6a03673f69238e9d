package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"corral/isolate/client"
	"corral/job"
)

// crowd is the number of processes that deadlineMode kills at once. Even on a loaded machine, all of them start within
// crowdWall. shortWall is the deadline of a single process.
const (
	crowd     = 1000
	crowdWall = 12 * time.Second
	shortWall = 200 * time.Millisecond
)

// deadlineMode measures the time from the deadline of a job to the answer, after which no process of the job is left.
func deadlineMode(ctx context.Context, o *options) error {
	c, err := client.Dial(o.socket)
	if err != nil {
		return err
	}
	defer c.Close()
	r := newResult("deadline", "Answers at the deadline", "job", "median ms late", "p95 ms late", "worst ms late", "jobs")
	if err := runJob(c, job.Spec{Repo: o.repo, Args: []string{program}}); err != nil { // builds the jail
		return err
	}
	one := job.Spec{Repo: o.repo, Args: []string{"/bin/sleep", "600"}, Limits: job.Limits{Wall: shortWall}}
	script := fmt.Sprintf("i=0; while [ $i -lt %d ]; do sleep 600 & i=$((i+1)); done; echo; wait", crowd)
	many := job.Spec{
		Repo: o.repo, Args: []string{"/bin/sh", "-c", script},
		Limits: job.Limits{Wall: crowdWall, PIDs: crowd + 10},
	}
	for _, row := range []struct {
		name  string
		spec  job.Spec
		n     int
		ready bool
	}{
		{"one process, deadline of 200 ms", one, min(o.rounds, 30), false},
		{fmt.Sprintf("%d processes, deadline of %v", crowd, crowdWall), many, min(o.rounds, 3), true},
	} {
		if err := late(ctx, c, r, row.name, row.spec, row.n, row.ready); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.add(row.name, "–", "–", "–", "not measured: "+reason(err))
		}
	}
	r.note("Counted from the request, so what it takes to start the job is in it. When the answer comes, no process of the job is left.")
	return o.publish(r)
}

// late runs a job to its deadline, n times. With ready, the job must have written something before its deadline.
func late(ctx context.Context, c *client.Client, r *Result, name string, spec job.Spec, n int, ready bool) error {
	var all []float64
	for range n {
		var listen func(*os.File)
		begun := !ready
		if ready {
			listen = func(out *os.File) {
				_, err := out.Read(make([]byte, 1))
				begun = err == nil
			}
		}
		start := time.Now()
		result, err := runTo(ctx, c, spec, listen)
		took := time.Since(start)
		switch {
		case err != nil:
			return err
		case result.Status != job.Timeout:
			return fmt.Errorf("%+v", result)
		case !begun:
			return errors.New("the deadline came before all processes had begun")
		}
		all = append(all, ms(took-spec.Limits.Wall))
	}
	r.add(name, number(quantile(all, 0.5)), number(quantile(all, 0.95)), number(quantile(all, 1)), fmt.Sprint(n))
	return nil
}
