package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// script is run with bash on both sides of the comparison.
const script = "true\n"

// newAgent starts an MCP server and opens a session as an agent host does.
func newAgent(o *options, more ...string) (*server, error) {
	a, err := o.front("mcp", more...)
	if err != nil {
		return nil, err
	}
	if err := a.greet(); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// greet opens a session as an agent host does.
func (p *server) greet() error {
	_, err := p.ask("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "bench", "version": "1"},
	})
	if err != nil {
		return err
	}
	return p.tell("notifications/initialized")
}

// execute runs the script as a job.
func execute(a *server, repo string) error {
	result, err := a.ask("tools/call", map[string]any{
		"name": "runtime_execute", "arguments": map[string]any{"repoId": repo, "runtime": "shell", "code": script},
	})
	if err != nil {
		return err
	}
	return executed(result)
}

// mcpRows measures a script that bash runs alone, and that a warm server runs.
func mcpRows(o *options) ([]*Row, func(), error) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		return nil, nil, err
	}
	file := filepath.Join(o.dir, "code.sh")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return nil, nil, err
	}
	a, err := newAgent(o)
	if err != nil {
		return nil, nil, err
	}
	id := filepath.Base(o.repo)
	return []*Row{
		{Name: "bash code.sh", Sets: "nothing", Run: command(bash, file)},
		{Name: "corral, runtime_execute, stdio", Serial: true, Sets: full + "; policy, artifact", Run: func() error {
			return execute(a, id)
		}},
	}, a.close, nil
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
