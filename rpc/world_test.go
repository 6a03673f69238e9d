package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"corral/job"
)

// A world is the runner, policy and auditor of a test. Its jobs are functions.
type world struct {
	mu     sync.Mutex
	specs  []job.Spec                                 // guarded by mu: of all jobs that ran
	reqs   []job.Request                              // guarded by mu: all requests that reached the policy
	denied []job.Claim                                // guarded by mu
	deny   func(r *job.Request) (rule, reason string) // guarded by mu
	run    func(ctx context.Context, io job.Stdio, argv []string) (job.Result, error)
}

func (w *world) Decide(_ context.Context, r *job.Request) (job.Decision, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reqs = append(w.reqs, *r)
	d := job.Decision{Hash: "h", Spec: job.Spec{Args: r.Command, Dir: r.Dir, Terminal: r.Terminal}}
	if r.Workspace != nil {
		d.Spec.Workspace = *r.Workspace
	}
	if r.Repo == "" {
		d.Rule, d.Reasons = "repo", []string{"The request names no repository"}
	} else if w.deny != nil {
		if rule, reason := w.deny(r); rule != "" {
			d.Rule, d.Reasons = rule, []string{reason}
		}
	}
	return d, nil
}

func (w *world) Denied(_ context.Context, c job.Claim, _ job.Spec) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.denied = append(w.denied, c)
	return nil
}

func (w *world) Run(ctx context.Context, spec job.Spec, io job.Stdio) (job.Result, error) {
	w.mu.Lock()
	w.specs = append(w.specs, spec)
	w.mu.Unlock()
	defer func() {
		for _, f := range []*os.File{io.Stdin, io.Stdout, io.Stderr} {
			_ = f.Close()
		}
	}()
	r, err := w.run(ctx, io, spec.Args)
	if ctx.Err() != nil && err == nil && r.Status == "" {
		r = job.Result{Status: job.Cancelled, ExitCode: -1, Signal: 9}
	}
	if r.Status == "" {
		r.Status = job.Success
	}
	return r, err
}

// served is the repository that most tests use, and the server's Dir.
const served = "/srv/app"

func (w *world) server() *Server {
	return &Server{
		Access: Access{
			Engine: &job.Engine{Policy: w, Runner: w, Auditor: w},
			Repos:  []Repo{{ID: "app", Path: served}, {ID: "inner", Path: served + "/inner"}, {ID: "other", Path: "/srv/other"}},
		},
		Dir: served, Version: "1.2.3",
	}
}

// shell implements a few programs.
func shell(ctx context.Context, io_ job.Stdio, argv []string) (job.Result, error) {
	switch argv[0] {
	case "echo":
		say(io_.Stdout, strings.Join(argv[1:], " ")+"\n")
	case "both":
		say(io_.Stdout, "out")
		say(io_.Stderr, "err")
	case "cat":
		if io_.Stdin != nil {
			killable(ctx, func() { _, _ = io.Copy(io_.Stdout, io_.Stdin) })
		}
	case "true":
	case "sleep":
		<-ctx.Done()
	case "yes":
		line := bytes.Repeat([]byte("y\n"), 2048)
		killable(ctx, func() {
			for err := error(nil); err == nil; {
				_, err = io_.Stdout.Write(line)
			}
		})
	case "write": // writes that many bytes
		_, _ = io.CopyN(io_.Stdout, zeros{}, int64(number(argv[1])))
	case "print":
		say(io_.Stdout, argv[1])
	case "exit":
		return job.Result{Status: job.Failure, ExitCode: number(argv[1])}, nil
	case "signal":
		return job.Result{Status: job.Failure, ExitCode: -1, Signal: 15}, nil
	case "oom":
		return job.Result{Status: job.Failure, ExitCode: -1, Signal: 9, Limit: job.LimitMemory}, nil
	case "timeout":
		say(io_.Stdout, "part")
		return job.Result{Status: job.Timeout, ExitCode: -1, Signal: 9}, nil
	case "sensitive":
		return job.Result{Network: &job.NetworkUse{Denied: 1, Denials: []job.NetworkDenial{{Name: "example.org", Port: 443, Why: "no rule", Count: 1}}}, Sensitive: []string{".git/hooks/x\n\xff"}, SensitiveMore: 3}, nil
	case "lost":
		return job.Result{Status: job.Lost}, nil
	case "down":
		return job.Result{}, fmt.Errorf("%w at\n/run/x", job.ErrUnavailable)
	case "missing":
		return job.Result{}, &job.Refusal{Step: "exec", Errno: int(syscall.ENOENT), Message: "missing: no such file"}
	case "closed":
		return job.Result{}, &job.Refusal{Step: "exec", Errno: int(syscall.EACCES), Message: "x"}
	case "text":
		return job.Result{}, &job.Refusal{Step: "exec", Errno: int(syscall.ENOEXEC), Message: "x"}
	case "nowhere":
		return job.Result{}, &job.Refusal{Step: "cwd", Errno: int(syscall.ENOENT), Message: "x"}
	case "outside":
		return job.Result{}, &job.Refusal{Step: "cwd", Errno: int(syscall.EXDEV), Message: "x"}
	case "large":
		return job.Result{}, &job.Refusal{Step: "payload", Message: "x"}
	case "full":
		return job.Result{}, &job.Refusal{Step: "limits", Message: "more than the operator allows"}
	default:
		return job.Result{}, errors.New("the test's shell lacks the program " + argv[0])
	}
	return job.Result{}, nil
}

func say(f *os.File, s string) { _, _ = f.WriteString(s) }

func number(s string) int {
	n, _ := strconv.Atoi(s) // the tests pass valid numbers only
	return n
}

// killable runs a function that may block on a pipe. If ctx ends it returns at once; closing the pipe's other end then
// unblocks the function.
func killable(ctx context.Context, run func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		run()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// zeros is an endless reader of zero bytes.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
