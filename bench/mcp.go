package main

import (
	"encoding/json"
	"fmt"
)

// newAgent starts an MCP server and opens a session as an agent host does.
func newAgent(o *options) (*server, error) {
	a, err := o.front("mcp")
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
