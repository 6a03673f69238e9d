// Package storetest fills state directories of front-ends, for tests.
package storetest

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"corral/job"
	"corral/store/artifact"
	"corral/store/index"
)

// Index indexes a text in a state directory, as a server does.
func Index(t testing.TB, state string, b index.Base, text string) {
	t.Helper()
	f, err := os.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x, err := index.Open(f, index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := x.Add(t.Context(), b, index.Source{Label: "notes", Fixed: true}, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

// Keep stores the output of one job in a state directory, as a server does.
func Keep(t testing.TB, state, stdout, stderr string) (handle string) {
	t.Helper()
	f, err := os.Open(state)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := artifact.Open(f, artifact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out := s.Begin(artifact.BeginOptions{Repo: "app", Runtime: "shell", Principal: "user:ada", Persist: true})
	o, e, err := out.Streams()
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range []struct {
		f    *os.File
		text string
	}{{o, stdout}, {e, stderr}} {
		if _, err := io.WriteString(to.f, to.text); err != nil {
			t.Fatal(err)
		}
		to.f.Close()
	}
	out.Finish(&job.Record{Status: job.Failure, Result: job.Result{ID: "job-kept1234", ExitCode: 3}, Created: time.Now()})
	if h := out.Captured().Handle; h != "" {
		return h
	}
	t.Fatal(out.Captured().Reason)
	return ""
}

// Dir creates a state directory, which only its owner may access.
func Dir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}
