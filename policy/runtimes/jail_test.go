package runtimes

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
	"corral/isolate/client"
	"corral/job"
)

// A bench is a supervisor, a client of it, and a repository.
type bench struct {
	t         testing.TB
	c         *client.Client
	repo      string
	installed Installed
	daemon    *sandboxtest.Supervisor
}

// newBench starts a supervisor that shows toolchains, and stops it at the end of the test.
func newBench(t testing.TB, toolchains ...string) *bench {
	t.Helper()
	sandboxtest.RequireJails(t)
	repo := t.TempDir()
	args := []string{"--repo", repo}
	for _, toolchain := range toolchains {
		args = append(args, "--toolchain", toolchain)
	}
	b := &bench{
		t: t, repo: repo, installed: Find(Places{Toolchains: toolchains, Never: []string{repo}}),
		daemon: sandboxtest.Daemon(t, sandboxtest.DaemonOptions{Args: args}),
	}
	var err error
	if b.c, err = client.Dial(b.daemon.Socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.c.Close() })
	return b
}

// write writes a file in the repository.
func (b *bench) write(name, content string, mode os.FileMode) {
	b.t.Helper()
	path := filepath.Join(b.repo, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), mode)); err != nil {
		b.t.Fatal(err)
	}
}

// A did is the outcome of a job.
type did struct {
	job.Result
	out, err string
}

// A try is code to run.
type try struct {
	runtime, executable string
	code                *string
	args                []string
	stdin               string
	limits              job.Limits
}

// spec plans a try. The host must have its runtime.
func (b *bench) spec(q try) job.Spec {
	b.t.Helper()
	c, missing := b.installed.Choose(q.runtime, q.executable, nil)
	if missing != "" {
		b.t.Fatal(missing)
	}
	spec := job.Spec{Repo: b.repo, Limits: q.limits}
	spec.Args, spec.Files, spec.Env = c.Plan(q.code, q.args)
	spec.Env = append(spec.Env, "HOME=/home/job", "TMPDIR=/tmp")
	return spec
}

// run runs a try, which must start.
func (b *bench) run(q try) did {
	b.t.Helper()
	d, err := b.do(b.spec(q), strings.NewReader(q.stdin))
	if err != nil {
		b.t.Fatalf("%s: %v", q.runtime, err)
	}
	return d
}

// do runs a job; stdin is its input.
func (b *bench) do(spec job.Spec, stdin io.Reader) (did, error) {
	b.t.Helper()
	var ours, theirs [3]*os.File
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			b.t.Fatal(err)
		}
		if ours[i], theirs[i] = r, w; i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	run, err := b.c.Start(spec, job.Stdio{Stdin: theirs[0], Stdout: theirs[1], Stderr: theirs[2]}, nil)
	if err != nil {
		return did{}, errors.Join(err, ours[0].Close(), ours[1].Close(), ours[2].Close())
	}
	read := func(f *os.File) <-chan string {
		all := make(chan string, 1)
		go func() {
			text, _ := io.ReadAll(f)
			all <- string(text)
		}()
		return all
	}
	out, errs := read(ours[1]), read(ours[2])
	_, _ = io.Copy(ours[0], stdin) // fails if the job does not read it
	_ = ours[0].Close()
	result, err := run.Wait()
	return did{result, <-out, <-errs}, errors.Join(err, ours[1].Close(), ours[2].Close())
}

// seconds returns a limit that is longer on a slow machine.
func seconds(n int) time.Duration {
	return sandboxtest.Slow(time.Duration(n) * time.Second)
}
