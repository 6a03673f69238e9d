package ctxtools

import (
	"context"

	"corral/mcp/run"
	"corral/mcp/tool"
	"corral/store/artifact"
)

const (
	// rawOutput is the maximum number of bytes of standard output returned as they are; longer output is indexed.
	rawOutput = 100 << 10
	// smallOutput is the maximum number of bytes of an output that is not indexed even with an intent.
	smallOutput = 5000
)

// script returns a job that runs code in a language, whose output is indexed as that of ctx_execute.
func script(c tool.Caller, name, repo, runtime, code string) run.Job {
	r := run.NewRequest(c, name, repo)
	r.Runtime, r.Code = runtime, &code
	return run.Job{Caller: c, Request: r, Label: languageLabel(runtime)}
}

// Script returns a job that runs code as ctx_execute does.
func Script(c tool.Caller, name, repo string, l Language, code string) run.Job {
	entry := languageOf(l)
	return script(c, name, repo, entry.Runtime, entry.Source(code))
}

// run runs a job and waits for its end. A job that was denied, failed or timed out is not an error.
func (x *Suite) run(ctx context.Context, j run.Job) (*run.State, error) {
	s, err := j.Do(ctx, x.Engine, x.Outputs, x.options(rawOutput/2))
	if err != nil {
		return nil, err
	}
	x.sums.add(run.OwnerOf(j.Caller), 0, s.Output.Stdout.Size()+s.Output.Stderr.Size(), 0)
	return &s, nil
}

// options describe a capture that stores all output and keeps margins bytes at each end in memory.
func (x *Suite) options(margins int) artifact.BeginOptions {
	return artifact.BeginOptions{Persist: true, Secrets: x.Secrets, View: artifact.View{Ends: margins}}
}
