package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
)

// newAgent starts an MCP server and opens a session as an agent host does.
func newAgent(o *options) (*server, error) {
	a, err := o.front("mcp")
	if err != nil {
		return nil, err
	}
	_, err = a.ask("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "bench", "version": "1"},
	})
	if err == nil {
		err = a.tell("notifications/initialized")
	}
	if err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// toolRows measures a call of a tool of a warm server, whose result must satisfy ok.
func toolRows(o *options, r Row, tool string, arguments map[string]any, ok func(json.RawMessage) error) ([]*Row, func(), error) {
	a, err := newAgent(o)
	if err != nil {
		return nil, nil, err
	}
	call := map[string]any{"name": tool, "arguments": arguments}
	r.Serial, r.Run = true, func() error {
		result, err := a.ask("tools/call", call)
		if err != nil {
			return err
		}
		return ok(result)
	}
	return []*Row{&r}, a.close, nil
}

// stdioRows measures runtime_execute.
func stdioRows(o *options) ([]*Row, func(), error) {
	row := Row{Name: "corral, MCP by stdio", Sets: "the same; policy, artifact; a shell starts the program"}
	return toolRows(o, row, "runtime_execute", map[string]any{
		"repoId": filepath.Base(o.repo), "runtime": "shell", "executable": "sh", "args": []string{"-c", "exec " + program},
	}, executed)
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
