package server

import (
	"fmt"
	"log/slog"
	"os"

	"corral/front/telemetry"
	"corral/internal/config"
	"corral/internal/directory"
	"corral/internal/text"
	"corral/internal/version"
)

// openTracer starts the export of spans as configured. It returns nil if no spans are exported.
func openTracer(c config.Config, log *slog.Logger) (*telemetry.Tracer, error) {
	t := c.Telemetry
	if t.Traces == config.TracesOff {
		return nil, nil
	}
	// A file that jobs can read or write is unfit for a log or a secret.
	for key, path := range map[string]string{"file": t.File, "headers_file": t.HeadersFile} {
		if repo := containingRepo(path, RepoPaths(c.Repos)); repo != "" {
			return nil, fmt.Errorf("telemetry.%s: %s lies in the repository %s, where jobs can access it\nhint: choose a path outside of all repositories",
				key, text.Quote(path), text.Quote(repo))
		}
	}
	return telemetry.Open(telemetry.Options{
		Traces: t.Traces, Service: t.Service, Version: version.Version, Stderr: os.Stderr, File: t.File,
		Endpoint: t.Endpoint, HeadersFile: t.HeadersFile, Getenv: os.Getenv, Log: log,
	})
}

// containingRepo returns the repository that contains path, by its name or by where links on the way to it are or lead; "" if none does.
func containingRepo(path string, repos []string) string {
	if path == "" {
		return ""
	}
	trail := directory.Trail(path)
	for _, repo := range repos {
		if directory.Passes(path, trail, repo) {
			return repo
		}
	}
	return ""
}
