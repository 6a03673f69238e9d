package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"corral/internal/test/sandboxtest"
	"corral/internal/test/screentest"
)

// A call is a program on a terminal of command/exec, reached through the pipes of its server.
type call struct {
	t      *testing.T
	p      *process
	output *io.PipeReader
	code   chan int

	mu sync.Mutex
	to io.Writer // guarded by mu
	id int       // guarded by mu
}

const (
	initializeID = 1
	execID       = 2
)

// execute starts a server of its own for one call.
func execute(t *testing.T, repo string, params map[string]any) *call {
	t.Helper()
	stdin, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "exec-server", "--repo", repo, "--log-level", "warn")
	cmd.Env = append(cmd.Env, "XDG_STATE_HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir())
	cmd.Dir = repo
	cmd.Stdin, cmd.Stdout = stdin, stdout
	read, written := io.Pipe()
	c := &call{t: t, output: read, code: make(chan int, 1), to: to}
	c.p = start(t, cmd)
	stdin.Close()
	stdout.Close()
	t.Cleanup(func() { to.Close() })
	go func() {
		defer from.Close()
		written.CloseWithError(c.listen(from, written))
	}()
	c.send("initialize", map[string]any{"clientInfo": map[string]any{"name": "test", "version": "1"}})
	c.send("command/exec", params)
	return c
}

func (c *call) send(method string, params map[string]any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id++
	line, err := json.Marshal(map[string]any{"id": c.id, "method": method, "params": params})
	if err == nil {
		_, err = c.to.Write(append(line, '\n'))
	}
	if err != nil {
		c.t.Errorf("%s: %v", method, err)
	}
}

// listen forwards the program's output until the reply to its call.
func (c *call) listen(from io.Reader, output io.Writer) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		var m struct {
			ID     int
			Method string
			Error  json.RawMessage
			Params struct{ DeltaBase64 []byte }
			Result struct {
				ExitCode       int
				Stdout, Stderr string
			}
		}
		switch err := json.Unmarshal(line, &m); {
		case err != nil:
			c.t.Errorf("%q: %v", line, err)
		case m.Error != nil:
			c.t.Errorf("refused: %s", line)
			if m.ID <= execID {
				return io.EOF
			}
		case m.Method == "command/exec/outputDelta":
			if _, err := output.Write(m.Params.DeltaBase64); err != nil {
				return err
			}
		case m.ID == execID:
			if m.Result.Stdout+m.Result.Stderr != "" {
				c.t.Errorf("output that was streamed is in the reply, too: %s", line)
			}
			c.code <- m.Result.ExitCode
			return io.EOF
		}
	}
}

func (c *call) Read(b []byte) (int, error) { return c.output.Read(b) }

func (c *call) Write(b []byte) (int, error) {
	c.send("command/exec/write", map[string]any{"processId": "p", "deltaBase64": b})
	return len(b), nil
}

func (c *call) Resize(rows, cols uint16) error {
	c.send("command/exec/resize", map[string]any{"processId": "p", "size": map[string]any{"rows": rows, "cols": cols}})
	return nil
}

func (c *call) Wait() int {
	c.t.Helper()
	select {
	case code := <-c.code:
		return code
	default:
		c.t.Errorf("no reply; the server says %s", c.p.Err.String())
		return -1
	}
}

// TestInteractiveExec plays the same programs on a terminal of command/exec.
func TestInteractiveExec(t *testing.T) {
	sandboxtest.RequireJails(t)
	screentest.Test(t, repository, func(t *testing.T, repo string, args, env []string, rows, cols uint16) screentest.Session {
		values := map[string]any{}
		for _, e := range env {
			name, value, _ := strings.Cut(e, "=")
			values[name] = value
		}
		return execute(t, repo, map[string]any{
			"command": args, "processId": "p", "tty": true, "cwd": repo, "env": values, "disableTimeout": true,
			"size":          map[string]any{"rows": rows, "cols": cols},
			"sandboxPolicy": map[string]any{"type": "workspaceWrite", "writableRoots": []string{}, "networkAccess": false},
		})
	})
}
