package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// The harness for tests of corral mcp: a repository, supervisors, and hosts that talk to the built program over its
// standard streams.

// A host is the client of one server, like an agent host.
type host struct {
	t     *testing.T
	cmd   *exec.Cmd
	to    io.WriteCloser
	from  io.Closer     // the server's standard output
	ended chan struct{} // closed when the server has ended
	log   sandboxtest.Output

	mu      sync.Mutex
	id      int                      // guarded by mu
	pending map[int]chan<- *response // guarded by mu
	stray   []string                 // guarded by mu; messages that answer no request
	notes   []json.RawMessage        // guarded by mu; notifications
}

// A response is the answer to a request; Result is that of tools/call.
type response struct {
	ID     *int            `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Error  *struct {
		Code    int
		Message string
	} `json:"error"`
	Result struct {
		IsError    bool
		Content    []struct{ Type, Text, Data string }
		Structured json.RawMessage `json:"structuredContent"`
		Tools      []struct {
			Name, Description         string
			InputSchema, OutputSchema json.RawMessage
		}
	} `json:"result"`
	at time.Time // when it was received
}

// connect starts a server and does what a host does before it calls a tool.
func connect(t *testing.T, cmd *exec.Cmd) *host {
	t.Helper()
	h := &host{t: t, cmd: cmd, ended: make(chan struct{}), pending: map[int]chan<- *response{}}
	cmd.Stderr = &h.log
	var err error
	if h.to, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.from = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(h.ended)
		h.receive(out)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		h.to.Close()
		select {
		case <-h.ended:
		case <-time.After(sandboxtest.Slow(20 * time.Second)):
			t.Error("the server did not end with its input")
			_ = cmd.Process.Kill()
			<-h.ended
		}
		if t.Failed() {
			t.Logf("the server's diagnostic log:\n%s", h.log.String())
		}
	})
	h.must("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "test", "version": "1"},
	})
	h.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return h
}

// end ends a server's input, and returns its diagnostic log.
func (h *host) end() string {
	h.t.Helper()
	_ = h.to.Close()
	select {
	case <-h.ended:
	case <-time.After(sandboxtest.Slow(20 * time.Second)):
		h.t.Fatal("the server did not end with its input")
	}
	return h.log.String()
}

func (h *host) receive(out io.Reader) {
	r := bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			break
		}
		a := &response{at: time.Now()}
		if err := json.Unmarshal(line, a); err != nil {
			h.t.Errorf("standard output has %.200q: %v", line, err)
			continue
		}
		h.mu.Lock()
		switch {
		case a.ID == nil:
			h.notes = append(h.notes, append(json.RawMessage(nil), line...))
		case h.pending[*a.ID] == nil:
			h.stray = append(h.stray, string(line))
		default:
			h.pending[*a.ID] <- a
			delete(h.pending, *a.ID)
		}
		h.mu.Unlock()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, waiting := range h.pending {
		close(waiting)
	}
	h.pending = map[int]chan<- *response{}
}

func (h *host) send(line string) {
	_, _ = io.WriteString(h.to, line+"\n") // the caller notices that the server has ended
}

// ask sends a request. The channel receives its answer, and is closed if the server ends before.
func (h *host) ask(method string, params any) (id int, answer <-chan *response) {
	h.mu.Lock()
	h.id++
	id = h.id
	c := make(chan *response, 1)
	h.pending[id] = c
	h.mu.Unlock()
	request, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		h.t.Error(err)
	}
	h.send(string(request))
	return id, c
}

// must sends a request whose answer must not be an error of the protocol.
func (h *host) must(method string, params any) *response {
	h.t.Helper()
	return h.mustWithin(0, method, params)
}

// mustWithin is must for a request that may itself take a time.
func (h *host) mustWithin(own time.Duration, method string, params any) *response {
	h.t.Helper()
	_, answer := h.ask(method, params)
	select {
	case a := <-answer:
		if a == nil {
			h.t.Fatalf("%s: the server has ended: %s", method, h.log.String())
		}
		if a.Error != nil {
			h.t.Fatalf("%s: %+v", method, *a.Error)
		}
		return a
	case <-time.After(own + sandboxtest.Slow(3*time.Minute)):
		h.t.Fatalf("%s: no answer", method)
	}
	return nil
}

type object = map[string]any

// started sends a call of runtime_execute for the repository app.
func (h *host) started(arguments object) (id int, answer <-chan *response) {
	if arguments["repoId"] == nil {
		arguments["repoId"] = "app"
	}
	return h.ask("tools/call", object{
		"name": "runtime_execute", "arguments": arguments, "_meta": object{"progressToken": "p"},
	})
}

// An outcome is the reply of runtime_execute.
type outcome struct {
	Status         string
	ExitCode       *int
	DurationMs     int64
	Message        string
	StdoutSummary  *string
	StderrSummary  *string
	ArtifactHandle *string
	Truncation     struct{ TotalStdoutBytes, TotalStderrBytes int64 }
	PolicyDecision struct {
		AuditHash     string
		DeniedReasons []string
	}
	SensitiveChanges []string
	Code             string // of an error

	isError bool
	text    string
	at      time.Time
}

func (h *host) outcome(a *response) *outcome {
	h.t.Helper()
	o := &outcome{isError: a.Result.IsError, at: a.at}
	if err := json.Unmarshal(a.Result.Structured, o); err != nil {
		h.t.Fatalf("%s: %v", a.Result.Structured, err)
	}
	for _, block := range a.Result.Content {
		o.text += block.Text
	}
	return o
}

// execute calls runtime_execute for the repository app.
func (h *host) execute(arguments object) *outcome {
	h.t.Helper()
	if arguments["repoId"] == nil {
		arguments["repoId"] = "app"
	}
	return h.outcome(h.must("tools/call", object{"name": "runtime_execute", "arguments": arguments}))
}

// A finding is the reply of runtime_query_output.
type finding struct {
	MatchStatus string
	Excerpts    []struct{ Content string }
	Code        string // of an error
}

// query calls runtime_query_output.
func (h *host) query(arguments object) *finding {
	h.t.Helper()
	a := h.must("tools/call", object{"name": "runtime_query_output", "arguments": arguments})
	f := &finding{}
	if err := json.Unmarshal(a.Result.Structured, f); err != nil {
		h.t.Fatalf("%s: %v", a.Result.Structured, err)
	}
	return f
}

// shell runs a shell script in mode summary.
func (h *host) shell(code string) *outcome {
	h.t.Helper()
	return h.execute(object{"runtime": "shell", "code": code, "outputMode": "summary", "maxResponseLines": 1000})
}

// out returns the output of a job in mode summary.
func (o *outcome) out() string {
	if o.StdoutSummary == nil {
		return ""
	}
	return *o.StdoutSummary
}

func itoa(n int) string { return strconv.Itoa(n) }

func kill(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err == nil {
		err = syscall.Kill(n, syscall.SIGKILL)
	}
	if err != nil {
		t.Error(err)
	}
}
