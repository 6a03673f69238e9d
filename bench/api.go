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
	var stdio job.Stdio
	for _, to := range []**os.File{&stdio.Stdout, &stdio.Stderr} {
		read, write, err := os.Pipe()
		if err != nil {
			return err
		}
		defer read.Close()
		*to = write // Run closes it
	}
	r, err := c.Run(context.Background(), spec, stdio)
	if err == nil && r.Status != job.Success {
		err = fmt.Errorf("%+v", r)
	}
	return err
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
