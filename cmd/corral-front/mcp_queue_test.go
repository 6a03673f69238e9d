package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// TestTwelveAtOnce checks, for each tool that runs something, that twelve calls at once all get their answer from a server with
// its defaults that runs two at a time: none is denied because others run.
func TestTwelveAtOnce(t *testing.T) {
	sandboxtest.RequireJails(t)
	const calls = 12
	shell := func(n int) string { return fmt.Sprintf("sleep 0.2; echo %d-done", n) }
	p := newPlace(t)
	config, d := p.config(t, "runtime: {max_concurrent_jobs: 2}\n"), daemon(t)
	for _, tt := range []struct {
		tool      string
		arguments func(n int) object
	}{
		{"runtime_execute", func(n int) object { return object{"repoId": "app", "runtime": "shell", "code": shell(n)} }},
		{"ctx_execute", func(n int) object { return object{"language": "shell", "code": shell(n)} }},
		{"ctx_batch_execute", func(n int) object {
			return object{"commands": []object{{"label": "one", "command": shell(n)}}, "queries": []string{fmt.Sprintf("%d-done", n)}}
		}},
		{"sandbox_exec", func(n int) object { return object{"command": shell(n)} }},
		{"run", func(n int) object { return object{"code": shell(n)} }},
		{"starlark_run", func(n int) object {
			return object{"source": fmt.Sprintf("x = [n for n in range(200000)]\nemit('%d-done')", n), "limits": object{"wall_ms": 20000}}
		}},
	} {
		t.Run(tt.tool, func(t *testing.T) {
			h := connect(t, p.front("mcp", "--config", config, "--supervisor", d.Socket))
			h.t = t
			var answers []<-chan *response
			for n := range calls {
				_, answer := h.ask("tools/call", object{"name": tt.tool, "arguments": tt.arguments(n)})
				answers = append(answers, answer)
			}
			for n, answer := range answers {
				select {
				case a := <-answer:
					if a == nil || a.Error != nil || a.Result.IsError || !strings.Contains(a.Result.Content[0].Text, fmt.Sprintf("%d-done", n)) {
						t.Errorf("call %d: %+v", n, a)
					}
				case <-time.After(sandboxtest.Slow(2 * time.Minute)):
					t.Fatalf("call %d has no answer", n)
				}
			}
		})
	}
}
