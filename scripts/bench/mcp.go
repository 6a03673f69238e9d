package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// script is what both sides of the comparison run with bash.
const script = "true\n"

// newAgent starts a server of tools and does what a host does before it calls one.
func newAgent(o *options) (*peer, error) {
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

// execute has the script run as a job.
func execute(a *peer, repo string) error {
	result, err := a.ask("tools/call", map[string]any{
		"name": "runtime_execute", "arguments": map[string]any{"repoId": repo, "runtime": "shell", "code": script},
	})
	if err != nil {
		return err
	}
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

// mcpRows are one script, run by bash alone and by a warm server.
func mcpRows(o *options) ([]*row, func(), error) {
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
	return []*row{
		{name: "bash code.sh", what: "nothing", run: command(bash, file)},
		{name: "runtime_execute", what: "policy, audit, jail, artifact; over standard input and output", run: func() error {
			return execute(a, id)
		}},
	}, a.close, nil
}
