package server

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"corral/internal/calls"
	"corral/internal/config"
	"corral/job"
)

// TestOpenTracer checks that files that jobs could change are neither written nor read.
func TestOpenTracer(t *testing.T) {
	dir := t.TempDir()
	repo := filepath.Join(dir, "app")
	if err := os.Mkdir(repo, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(repo, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("app/away", filepath.Join(dir, "through")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), filepath.Join(repo, "away")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		telemetry config.Telemetry
		want      string // "" for no error
	}{
		{config.Telemetry{Traces: config.TracesOff, File: repo + "/x"}, ""},
		{config.Telemetry{Traces: config.TracesStderr}, ""},
		{config.Telemetry{Traces: config.TracesFile, File: dir + "/app.json"}, ""},
		{config.Telemetry{Traces: config.TracesFile, File: repo + "/x"}, "telemetry.file: " + repo + "/x lies in the repository"},
		{config.Telemetry{Traces: config.TracesFile, File: dir + "/link/x"}, "lies in the repository"},
		{config.Telemetry{Traces: config.TracesFile, File: dir + "/through/x"}, "lies in the repository"},
		{config.Telemetry{Traces: config.TracesOTLP, HeadersFile: repo + "/sub/headers"}, "telemetry.headers_file"},
		{config.Telemetry{Traces: config.TracesOTLP, HeadersFile: dir + "/none"}, "no such file"},
	} {
		c := config.Default()
		c.Repos, c.Telemetry = []config.Repo{{ID: "app", Path: repo}}, tt.telemetry
		tracer, err := openTracer(c, slog.New(slog.DiscardHandler))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt.telemetry, err)
		}
		tracer.Close()
	}
}

// TestTracing checks that a missing tracer is a nil interface.
func TestTracing(t *testing.T) {
	b := &Backend{}
	if b.Tracer() != nil {
		t.Error("a nil tracer is not a nil interface")
	}
	call := calls.Begin(b.Tracer(), calls.Start{})
	call.Ran(&job.Record{Request: &job.Request{}})
	call.End(t.Context(), nil, 0, "")
}
