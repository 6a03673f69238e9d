package main

import (
	"io"
	"math"
	"os"
	"testing"
	"time"

	"corral/job"
	"corral/store/artifact"
)

// keep stores the output of one job in a state directory, as a server does.
func keep(t testing.TB, state, stdout, stderr string) (handle string) {
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
	out.Finish(&job.Record{Status: job.Failure, Result: job.Result{ExitCode: 3}, Created: time.Now()})
	if h := out.Captured().Handle; h != "" {
		return h
	}
	t.Fatal(out.Captured().Reason)
	return ""
}

// stateOf creates a state directory, which only its owner may access.
func stateOf(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestParseLines checks valid and invalid line ranges.
func TestParseLines(t *testing.T) {
	for in, want := range map[string][2]int64{
		"1": {1, 1}, "10-20": {10, 20}, "7-7": {7, 7}, "3-": {3, math.MaxInt64},
		"": {}, "0": {}, "-5": {}, "5-4": {}, "a": {}, "1-b": {}, "1-2-3": {}, "99999999999999999999": {}, " 1": {},
	} {
		r, err := parseLines(in)
		if (err == nil) != (want[0] > 0) || err == nil && (r.Start != want[0] || r.End != want[1]) {
			t.Errorf("%q: %+v, %v", in, r, err)
		}
	}
}
