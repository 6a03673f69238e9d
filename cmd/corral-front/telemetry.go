package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"corral/front/telemetry"
	"corral/internal/calls"
	"corral/internal/config"
	"corral/internal/text"
	"corral/internal/version"
	"corral/job"
	"corral/store/artifact"
)

// openTracer begins to export the spans of calls where the configuration says; nil exports none.
func openTracer(c config.Config, log *slog.Logger) (*telemetry.Tracer, error) {
	t := c.Telemetry
	if t.Traces == config.TracesOff {
		return nil, nil
	}
	// What a job could write to, or read, is neither a log nor a secret.
	for key, path := range map[string]string{"file": t.File, "headers_file": t.HeadersFile} {
		if repo := holder(path, repoPaths(c)); repo != "" {
			return nil, fmt.Errorf("telemetry.%s: %s lies in the repository %s, where jobs can change it\nhint: put it elsewhere", key, text.Quote(path), text.Quote(repo))
		}
	}
	return telemetry.Open(telemetry.Options{
		Traces: t.Traces, Service: t.Service, Version: version.Version, Stderr: os.Stderr, File: t.File,
		Endpoint: t.Endpoint, HeadersFile: t.HeadersFile, Getenv: os.Getenv, Log: log,
	})
}

// holder returns the repository that path lies in, by its name or by where links lead; "" is none.
func holder(path string, repos []string) string {
	if path == "" {
		return ""
	}
	paths := []string{path}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		paths = append(paths, filepath.Join(dir, filepath.Base(path)))
	}
	for _, repo := range repos {
		for _, p := range paths {
			if strings.HasPrefix(p, strings.TrimSuffix(repo, "/")+"/") {
				return repo
			}
		}
	}
	return ""
}

// tracing is what servers tell of calls, nil if nobody wants to know.
func (b *backend) tracing() calls.Tracer {
	if b.tracer == nil { // which is not the same as an interface that is nil
		return nil
	}
	return b.tracer
}

// noted runs a request of a tool's, and notes it for the log and for the span of the call. All tools run what they run
// through it.
func noted(ctx context.Context, r *job.Request, run func() (*job.Record, error)) (*job.Record, error) {
	call := calls.Of(ctx)
	call.Repo(r.Repo)
	record, err := run()
	call.Ran(record)
	return record, err
}

// notedAnswer notes the repository of what was read.
func notedAnswer(ctx context.Context, a *artifact.Answer, err error) (*artifact.Answer, error) {
	if err == nil && a.Manifest != nil {
		calls.Of(ctx).Repo(a.Manifest.RepoID)
	}
	return a, err
}
