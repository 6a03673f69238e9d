package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/isolate/wire"
	"corral/job"
)

// printed returns what print writes to a standard stream.
func printed(t *testing.T, where **os.File, print func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	before := *where
	*where = w
	var b bytes.Buffer
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(&b, r)
		close(done)
	}()
	print()
	*where = before
	w.Close()
	<-done
	r.Close()
	return b.String()
}

// TestNamesAreEscaped: names chosen by a job, another user or the supervisor are escaped before they reach a terminal.
func TestNamesAreEscaped(t *testing.T) {
	sandboxtest.CheckShown(t, []sandboxtest.Place{
		// Their length is bounded by PATH_MAX and by the size of a message.
		{Name: "sensitive path", Lines: 1, Shows: func(s string) string {
			return printed(t, &os.Stderr, func() { printOutcome(job.Result{Sensitive: []string{s}}, &runOptions{}, &streams{}) })
		}},
		{Name: "network", Lines: 2, Shows: func(s string) string {
			use := &job.NetworkUse{Denials: []job.NetworkDenial{{Name: s, Why: s, Allow: "x" + s}}}
			return printed(t, &os.Stderr, func() { printOutcome(job.Result{Network: use}, &runOptions{}, &streams{}) })
		}},
		{Name: "ps", Lines: 2, Shows: func(s string) string {
			return printed(t, &os.Stdout, func() {
				if err := (&userNames{}).printJobs([]wire.Entry{{Job: "job-1", Repo: s, Tool: s, Runtime: s, Command: s}}); err != nil {
					t.Error(err)
				}
			})
		}},
		{Name: "session list", Lines: 2, Shows: func(s string) string {
			return printed(t, &os.Stdout, func() {
				list := []job.Session{{ID: "session-1", Name: s, Repo: s, Image: s, Root: true}}
				if err := new(userNames).printSessions(list, func(*job.Session) ([]uint16, bool) { return []uint16{80}, true }); err != nil {
					t.Error(err)
				}
			})
		}},
		{Name: "error", Lines: 1, Shows: func(s string) string {
			s = strings.ReplaceAll(s, "\nhint", "\n hint") // errors quote names, so a name cannot start a hint
			return printed(t, &os.Stderr, func() { printError(errors.New("no program " + s)) })
		}},
		{Name: "hint", Lines: 2, Shows: func(s string) string {
			return printed(t, &os.Stderr, func() { printError(errors.New("refused\nhint: " + s)) })
		}},
		{Name: "run --json", Lines: 1, Shows: func(s string) string {
			out := &streams{}
			out.stdout.kept = []byte(s)
			return printed(t, &os.Stdout, func() {
				if err := printJSON(resultObject(job.Result{Sensitive: []string{s}}, &runOptions{}, out)); err != nil {
					t.Error(err)
				}
			})
		}},
		{Name: "refused --json", Lines: 1, Shows: func(s string) string {
			return printed(t, &os.Stdout, func() {
				if err := printJSON(errorObject(errors.New(s), &streams{})); err != nil {
					t.Error(err)
				}
			})
		}},
	})
}
