package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
)

// corralMakers returns the rows of corral, one for each of its interfaces.
func corralMakers() []peerMaker {
	return []peerMaker{
		{"corral, API", func(o *options) ([]*Row, func(), error) {
			r, done, err := apiRow(o)
			return []*Row{r}, done, err
		}},
		{"corral run", one(commandRow)},
		{"corral, MCP by stdio", stdioRows},
		{"corral, MCP by HTTP", httpRows},
		{"corral, command/exec", execRows},
		{"corral, sandbox_exec", sandboxRows},
	}
}

// closers collects functions that close calls in reverse order.
type closers struct{ all []func() }

func (c *closers) add(f func()) { c.all = append(c.all, f) }

func (c *closers) close() {
	for i := len(c.all) - 1; i >= 0; i-- {
		c.all[i]()
	}
	c.all = nil
}

// runTrue returns the arguments of a tool call that runs program.
func runTrue(repo string) map[string]any {
	return map[string]any{
		"name":      "runtime_execute",
		"arguments": map[string]any{"repoId": repo, "runtime": "shell", "executable": "sh", "args": []string{"-c", "exec " + program}},
	}
}

// executed returns an error unless a reply reports a successful run.
func executed(result json.RawMessage) error {
	var r struct {
		StructuredContent struct{ Status string }
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return err
	}
	if r.StructuredContent.Status != "success" {
		return fmt.Errorf("runtime_execute: %s", result)
	}
	return nil
}

// stdioRows measures a call of a warm server over standard input and output.
func stdioRows(o *options) ([]*Row, func(), error) {
	a, err := newAgent(o)
	if err != nil {
		return nil, nil, err
	}
	call := runTrue(filepath.Base(o.repo))
	return []*Row{{
		Name: "corral, MCP by stdio", Sets: full + "; policy, artifact; a shell starts the program", Serial: true,
		Run: func() error {
			result, err := a.ask("tools/call", call)
			if err != nil {
				return err
			}
			return executed(result)
		},
	}}, a.close, nil
}
