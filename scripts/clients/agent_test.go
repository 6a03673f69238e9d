package clients

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// An agent is a minimal client of one server over stdio, for tests that kill one of the two. Calls may be concurrent.
type agent struct {
	cmd     *exec.Cmd
	to      io.WriteCloser
	from    io.ReadCloser
	surplus atomic.Int32 // answers without a request

	mu      sync.Mutex
	id      int                    // guarded by mu
	waiting map[int]chan<- outcome // guarded by mu; nil after the server has ended
	ended   chan struct{}          // closed when the server's process has ended
}

// An outcome is the answer to a call, or the error if there was none.
type outcome struct {
	Status, Code, Message string
	ArtifactHandle        *string
	ArtifactReason        string
	MatchStatus           string
	IsError               bool
	err                   error
}

var errGone = errors.New("the server is gone")

// agent starts a server for the configuration, in a process group of its own.
func (h *host) agent(t *testing.T, config string, wrapper ...string) *agent {
	t.Helper()
	command := append(wrapper, h.asAlice("mcp", "--supervisor", h.daemon.Socket, "--config", config)...)
	a := &agent{cmd: exec.Command(command[0], command[1:]...), waiting: map[int]chan<- outcome{}, ended: make(chan struct{})}
	for name, value := range h.env() {
		a.cmd.Env = append(a.cmd.Env, name+"="+value)
	}
	a.cmd.Stderr = t.Output()
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if a.from, err = a.cmd.StdoutPipe(); err == nil {
		a.to, err = a.cmd.StdinPipe()
	}
	if err == nil {
		err = a.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go a.read()
	t.Cleanup(func() {
		a.to.Close()
		select {
		case <-a.ended:
		case <-time.After(sandboxtest.Slow(30 * time.Second)):
			t.Error("the end of its input has not ended the server")
			_ = a.cmd.Process.Kill()
			<-a.ended
		}
	})
	if o := a.ask("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "test", "version": "1"},
	}); o.err != nil {
		t.Fatal(o.err)
	}
	if _, err := io.WriteString(a.to, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	return a
}

// read delivers answers to the calls that wait for them, until the connection ends.
func (a *agent) read() {
	defer close(a.ended)
	defer func() { _ = a.cmd.Wait() }()
	defer a.gone()
	lines := bufio.NewScanner(a.from)
	lines.Buffer(nil, 10<<20)
	for lines.Scan() {
		var m struct {
			ID     int
			Result struct {
				StructuredContent outcome
				IsError           bool
			}
			Error *struct{ Message string }
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil || m.ID == 0 {
			continue
		}
		o := m.Result.StructuredContent
		o.IsError = m.Result.IsError
		if m.Error != nil {
			o.err = errors.New(m.Error.Message)
		}
		a.mu.Lock()
		if c := a.waiting[m.ID]; c != nil {
			delete(a.waiting, m.ID)
			c <- o
		} else {
			a.surplus.Add(1)
		}
		a.mu.Unlock()
	}
}

// gone ends the calls that still wait, with an error.
func (a *agent) gone() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.waiting {
		c <- outcome{err: errGone}
	}
	a.waiting = nil
}

// vanish closes both directions, as the death of a host does.
func (a *agent) vanish() {
	a.to.Close()
	a.from.Close()
}

// ask sends a request and waits for its answer.
func (a *agent) ask(method string, params map[string]any) outcome {
	answer := make(chan outcome, 1)
	a.mu.Lock()
	if a.waiting == nil {
		a.mu.Unlock()
		return outcome{err: errGone}
	}
	a.id++
	a.waiting[a.id] = answer
	request, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": a.id, "method": method, "params": params})
	if err == nil {
		_, err = a.to.Write(append(request, '\n'))
	}
	a.mu.Unlock()
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		return outcome{err: err}
	}
	return <-answer // errGone once the pipe is closed
}

// shell runs a script.
func (a *agent) shell(format string, values ...any) outcome {
	return a.ask("tools/call", map[string]any{"name": "runtime_execute", "arguments": map[string]any{
		"repoId": "app", "runtime": "shell", "code": fmt.Sprintf(format, values...),
	}})
}

// find searches an artifact for a word.
func (a *agent) find(handle, word string) outcome {
	return a.ask("tools/call", map[string]any{"name": "runtime_query_output", "arguments": map[string]any{
		"artifactHandle": handle, "queryTerms": []string{word},
	}})
}
