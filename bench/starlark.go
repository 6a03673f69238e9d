package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"corral/policy/starlark"
)

// echo is the program on both sides of the comparison, and said its input.
const (
	echo = "emit(read_input())"
	said = "an input of some length, as agents send it\n"
)

// starlarkRows measures a Starlark program: in its interpreter alone, and as a job of a warm server.
func starlarkRows(o *options) ([]*Row, func(), error) {
	file := filepath.Join(o.dir, "code.star")
	if err := os.WriteFile(file, []byte(echo), 0o600); err != nil {
		return nil, nil, err
	}
	a, err := newAgent(o)
	if err != nil {
		return nil, nil, err
	}
	bare := interpreter(filepath.Join(o.bin, "corral-starlark"), file)
	return []*Row{
		{Name: "corral-starlark", Sets: "nothing", Run: bare},
		{Name: "corral, starlark_run, stdio", Serial: true, Sets: full + "; policy", Run: func() error { return interpret(a) }},
	}, a.close, nil
}

// interpreter runs the program in its own process, as a shell would.
func interpreter(path, file string) func() error {
	args := starlark.Arguments(starlark.Bounds{Output: 64 << 10, Wall: time.Second, Memory: 256 << 20}, file)
	return func() error {
		stdin, input, err := os.Pipe()
		if err != nil {
			return err
		}
		output, stdout, err := os.Pipe()
		if err != nil {
			return err
		}
		defer output.Close()
		_, err = io.WriteString(input, said)
		p, started := os.StartProcess(path, args, &os.ProcAttr{Env: []string{}, Files: []*os.File{stdin, stdout, os.Stderr}})
		stdin.Close()
		stdout.Close()
		input.Close()
		if err := errors.Join(err, started); err != nil {
			return err
		}
		text, err := io.ReadAll(output)
		state, waited := p.Wait()
		if err := errors.Join(err, waited); err != nil {
			return err
		}
		if !state.Success() || string(text) != said {
			return fmt.Errorf("corral-starlark: %v, %q", state, text)
		}
		return nil
	}
}

// interpret runs the program as a job.
func interpret(a *server) error {
	result, err := a.ask("tools/call", map[string]any{"name": "starlark_run", "arguments": map[string]any{"source": echo, "input": said}})
	if err != nil {
		return err
	}
	var r struct {
		StructuredContent struct{ Stdout string }
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return err
	}
	if r.StructuredContent.Stdout != said {
		return fmt.Errorf("starlark_run: %s", result)
	}
	return nil
}
