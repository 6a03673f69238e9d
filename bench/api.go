package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"corral/isolate/client"
	"corral/job"
)

// runJob runs a job that must succeed and write nothing.
func runJob(c *client.Client, spec job.Spec) error {
	r, err := runTo(context.Background(), c, spec, nil)
	if err == nil && r.Status != job.Success {
		err = fmt.Errorf("%+v", r)
	}
	return err
}

// runTo runs a job. If f is not nil, it reads the job's standard output in a goroutine, which has ended when runTo returns.
func runTo(ctx context.Context, c *client.Client, spec job.Spec, f func(*os.File)) (job.Result, error) {
	var stdio job.Stdio
	var ours []*os.File
	for _, to := range []**os.File{&stdio.Stdout, &stdio.Stderr} {
		read, write, err := os.Pipe()
		if err != nil {
			return job.Result{}, err
		}
		*to = write
		ours = append(ours, read)
	}
	done := make(chan struct{})
	if f != nil {
		go func() {
			defer close(done)
			f(ours[0])
		}()
	}
	r, err := c.Run(ctx, spec, stdio)
	if f != nil {
		<-done
	}
	for _, file := range ours {
		file.Close()
	}
	return r, err
}

// full lists what corral sets up for every job.
const full = "all namespaces the job's own and fresh, cgroup, user namespace, seccomp, Landlock; audit"

// apiRow measures a job through the API, over one connection.
func apiRow(o *options) (*Row, func(), error) {
	c, err := client.Dial(o.socket)
	if err != nil {
		return nil, nil, err
	}
	spec := job.Spec{Repo: o.repo, Args: []string{program}}
	return &Row{Name: "corral, API", Sets: full, Run: func() error { return runJob(c, spec) }}, func() { c.Close() }, nil
}

// commandRow measures a job of the command, with a running supervisor.
func commandRow(o *options) *Row {
	return &Row{Name: "corral run", Sets: "the same, as a command", Run: command(filepath.Join(o.bin, "corral"),
		"run", "--supervisor", o.socket, "--repo", o.repo, "--", program)}
}
