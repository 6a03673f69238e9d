package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/test/example"
	"corral/internal/test/sandboxtest"
)

// These tests send the requests shown in docs/interfaces and in the README, and compare the answers.

// varies are the keys of replies whose values differ between runs, and patterns of other text that does.
var varies = []string{
	"artifactHandle", "auditHash", "changesHandle", "durationMs", "exec_duration_ms", "jobId", "job_id", "patchArtifact", "diskBytes",
	"wallMs", "cpuMs", "userMs", "systemMs", "peakMemoryBytes", "peakPids", "readBytes", "writeBytes", "queuedMs",
}

// interfaces returns the directory of the pages. Its README.md defines the repository and the configuration of all
// pages.
func interfaces(t *testing.T) string {
	t.Helper()
	return filepath.Join(sandboxtest.ModuleRoot(t), "docs", "interfaces")
}

// An exampleSite is a place as docs/interfaces/README.md describes it.
type exampleSite struct {
	*place
	*sandboxtest.Supervisor
	sections string // of the configuration
	matcher  *example.Matcher
}

func newExampleSite(t *testing.T) *exampleSite {
	t.Helper()
	common, err := example.Read(filepath.Join(interfaces(t), "README.md"), true)
	if err != nil {
		t.Fatal(err)
	}
	p := newPlace(t)
	s := &exampleSite{place: p, matcher: example.NewMatcher(varies...)}
	rules := filepath.Join(p.dir, "rules.star")
	s.matcher.Learn("/home/ada/app", p.repo)
	s.matcher.Learn("/home/ada/rules.star", rules)
	for _, b := range common.Blocks {
		switch b.Role {
		case example.File:
			p.file(t, b.Name, b.Text)
		case example.Config:
			s.sections += s.matcher.Actual(b.Text)
		case example.Rules:
			if err := os.WriteFile(rules, []byte(b.Text), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("README.md:%d: blocks of this kind belong on the page of a tool", b.Line)
		}
	}
	s.Supervisor = daemon(t)
	return s
}

// host starts a server on the place, and returns its client.
func (s *exampleSite) host(t *testing.T) *host {
	t.Helper()
	return connect(t, s.front("mcp", "--config", s.config(t, s.sections), "--supervisor", s.Socket))
}

// TestExamples runs the examples of each page in their order, in one session per page.
func TestExamples(t *testing.T) {
	sandboxtest.Require(t, sandboxtest.Timely) // the pages contain timeouts
	sandboxtest.RequireJails(t, sandboxtest.Program("python3"))
	pages, err := filepath.Glob(filepath.Join(interfaces(t), "*.md"))
	if err != nil || len(pages) < 2 {
		t.Fatalf("%q, %v", pages, err)
	}
	for _, file := range pages {
		if filepath.Base(file) == "README.md" {
			continue
		}
		page, err := example.Read(file, true)
		if err != nil {
			t.Error(err)
			continue
		}
		t.Run(page.Name, func(t *testing.T) {
			s := newExampleSite(t)
			if page.Name == "command_exec" {
				s.messages(t, page)
				return
			}
			h := s.host(t)
			for _, c := range page.Calls() {
				s.call(t, h, page, c)
			}
			for _, b := range page.Blocks {
				if b.Role != example.Request && b.Role != example.Reply {
					t.Errorf("%s.md:%d: blocks of this kind do not belong on this page", page.Name, b.Line)
				}
			}
		})
	}
}

// polled are the tools that report on jobs in progress. They are called until the reply is the one on the page.
var polled = []string{"ctx_job", "ctx_jobs"}

// call makes one call and compares the reply.
func (s *exampleSite) call(t *testing.T, h *host, page *example.Page, c example.Call) {
	t.Helper()
	tool := cmp.Or(c.Request.Name, page.Name)
	arguments := json.RawMessage(s.matcher.Actual(c.Request.Text))
	if !json.Valid(arguments) {
		t.Errorf("%s.md:%d: not JSON", page.Name, c.Request.Line)
		return
	}
	var wrong error
	defer func() {
		if wrong != nil {
			t.Errorf("%s.md:%d: %v", page.Name, c.Request.Line, wrong)
		}
	}()
	asked := func() bool {
		a := h.must("tools/call", object{"name": tool, "arguments": arguments})
		wrong = s.compare(c, a)
		return wrong == nil
	}
	if slices.Contains(polled, tool) {
		sandboxtest.Eventually(t, 30*time.Second, tool+" says what the page has", asked)
		return
	}
	asked()
}

func (s *exampleSite) compare(c example.Call, a *response) error {
	var text strings.Builder
	for _, block := range a.Result.Content {
		text.WriteString(block.Text)
	}
	var errs []error
	for _, r := range c.Replies {
		switch {
		case r.Failed != a.Result.IsError:
			errs = append(errs, fmt.Errorf("isError is %v: %s", a.Result.IsError, text.String()))
		case r.Language == "json":
			// The reply of sandbox_exec is text only.
			errs = append(errs, s.matcher.JSON(r.Text, cmp.Or(string(a.Result.Structured), text.String())))
		default:
			errs = append(errs, s.matcher.Text(r.Text, text.String()))
		}
	}
	return errors.Join(errs...)
}

// messages sends the messages of the page of command/exec on one connection, and compares the answers.
func (s *exampleSite) messages(t *testing.T, page *example.Page) {
	t.Helper()
	client := s.execSite(t, s.Supervisor, overStdio, s.sections).dial()
	came := make(chan []byte, 16)
	go func() {
		defer close(came)
		for {
			text, err := client.read()
			if err != nil {
				return
			}
			came <- text
		}
	}()
	for _, b := range page.Blocks {
		if b.Role != example.RPC {
			t.Errorf("%s.md:%d: blocks of this kind do not belong on this page", page.Name, b.Line)
			continue
		}
		lines := strings.Split(strings.TrimSuffix(b.Text, "\n"), "\n")
		for n := 0; n < len(lines); {
			at := fmt.Sprintf("%s.md:%d", page.Name, b.Line+1+n)
			if request, ok := strings.CutPrefix(lines[n], "→ "); ok {
				if err := client.write([]byte(s.matcher.Actual(request))); err != nil {
					t.Fatalf("%s: %v", at, err)
				}
				n++
				continue
			}
			answers := answersIn(lines[n:])
			n += max(1, len(answers))
			if err := s.await(came, answers); err != nil {
				t.Errorf("%s: %v", at, err)
			}
		}
	}
}

// answersIn returns the messages from the server with which lines begins.
func answersIn(lines []string) []string {
	var answers []string
	for _, line := range lines {
		answer, ok := strings.CutPrefix(line, "← ")
		if !ok {
			break
		}
		answers = append(answers, answer)
	}
	return answers
}

// await waits for one message for each of answers. The order of messages between two requests is not defined.
func (s *exampleSite) await(came <-chan []byte, answers []string) error {
	if len(answers) == 0 {
		return errors.New("neither sent nor received")
	}
	for len(answers) > 0 {
		select {
		case text, open := <-came:
			if !open {
				return errors.New("the connection has ended")
			}
			n := slices.IndexFunc(answers, func(a string) bool { return s.matcher.JSON(a, string(text)) == nil })
			if n < 0 {
				return s.matcher.JSON(answers[0], string(text))
			}
			answers = slices.Delete(answers, n, n+1)
		case <-time.After(sandboxtest.Slow(time.Minute)):
			return fmt.Errorf("no message; the page has %s", answers[0])
		}
	}
	return nil
}
