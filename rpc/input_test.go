package rpc

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"corral/internal/jsonrpc"
	"corral/internal/strictjson"
	"corral/job"
)

// TestInput checks that a process reads what its client writes, in order, until the input is closed.
func TestInput(t *testing.T) {
	w := &world{run: shell}
	p := initialized(t, w.server())
	exec := p.ask("command/exec", `{"command":["cat"],"processId":"c","streamStdin":true,"disableOutputCap":true}`)
	var want strings.Builder
	for n := range 200 {
		part := strings.Repeat(fmt.Sprint(n, " "), n*20)
		want.WriteString(part)
		p.ask("command/exec/write", fmt.Sprintf(`{"processId":"c","deltaBase64":%q}`, base64.StdEncoding.EncodeToString([]byte(part))))
	}
	p.must("command/exec/write", `{"processId":"c","deltaBase64":"","closeStdin":true}`)
	if r := p.result(exec); *r.ExitCode != 0 || *r.Stdout != want.String() {
		t.Errorf("exit code %d, %d bytes, want %d", *r.ExitCode, len(*r.Stdout), want.Len())
	}
	if m := p.answer(p.ask("command/exec/write", `{"processId":"c","closeStdin":true}`)); m.Error == nil || m.Error.Message != `no active command/exec for process id "c"` {
		t.Error(m.raw)
	}
	// A closed input stays closed.
	w.run = func(ctx context.Context, io job.Stdio, _ []string) (job.Result, error) {
		<-ctx.Done()
		return job.Result{}, nil
	}
	exec = p.ask("command/exec", `{"command":["x"],"processId":"c","streamStdin":true}`)
	p.must("command/exec/write", `{"processId":"c","closeStdin":true}`)
	p.must("command/exec/write", `{"processId":"c","closeStdin":true}`)
	m := p.answer(p.ask("command/exec/write", `{"processId":"c","deltaBase64":"YQ=="}`))
	if m.Error == nil || m.Error.Code != jsonrpc.CodeRequest || m.Error.Message != "stdin is already closed" {
		t.Error(m.raw)
	}
	p.must("command/exec/terminate", `{"processId":"c"}`)
	if r := p.result(exec); *r.ExitCode != 137 {
		t.Errorf("%+v", r)
	}
}

// TestUnread checks that unread input is buffered up to a bound, delays the answers to writes, and is dropped when the
// process ends.
func TestUnread(t *testing.T) {
	w := &world{run: shell}
	s := w.server()
	p := initialized(t, s)
	exec := p.ask("command/exec", `{"command":["sleep"],"processId":"c","streamStdin":true}`)
	part := base64.StdEncoding.EncodeToString(make([]byte, 3<<20))
	params := `{"processId":"c","deltaBase64":"` + part + `"}` // once: with the race detector, quoting 4 MiB takes long
	write := func() string { return p.ask("command/exec/write", params) }
	if m := p.answer(write()); m.Error != nil {
		t.Error(m.raw)
	}
	var late []string
	for range (maxInput - 3<<20) / (3<<20 + chunkOverhead) {
		late = append(late, write())
	}
	if m := p.answer(write()); m.Error == nil || m.Error.Code != codeBusy {
		t.Errorf("a write above the bound was accepted: %.200s", m.raw)
	}
	texts, _ := p.all()
	for _, m := range texts {
		if string(m.ID) == late[1] {
			t.Errorf("answered while %d bytes were queued: %s", 6<<20, m.raw)
		}
	}
	p.must("command/exec/terminate", `{"processId":"c"}`)
	for _, id := range late {
		if m := p.answer(id); m.Error != nil {
			t.Error(m.raw)
		}
	}
	if r := p.result(exec); *r.ExitCode != 137 {
		t.Errorf("%+v", r)
	}
	if held, _ := s.held.Held(); held != 0 {
		t.Errorf("%d bytes of the budget are still reserved", held)
	}
}

// TestBudget checks that output that exceeds the server's budget is an error, and that the process is ended.
func TestBudget(t *testing.T) {
	w := &world{run: shell}
	s := w.server()
	s.Budget = 3 << 20
	p := initialized(t, s)
	m := p.answer(p.ask("command/exec", `{"command":["yes"],"disableOutputCap":true}`))
	if m.Error == nil || m.Error.Code != jsonrpc.CodeInternal || !strings.HasPrefix(m.Error.Message, "the output does not fit into the server's budget of 3145728 bytes: ") {
		t.Errorf("%.300s", m.raw)
	}
	r := p.result(p.ask("command/exec", `{"command":["write","2000000"],"disableOutputCap":true}`))
	if len(*r.Stdout) != 2000000 || r.StdoutTruncated {
		t.Errorf("%d bytes", len(*r.Stdout))
	}
	p.must("command/exec/terminate", string(strictjson.Encode(map[string]string{"processId": p.running()})))
	if held, _ := s.held.Held(); held != 0 {
		t.Errorf("%d bytes of the budget are still reserved", held)
	}
}

// TestBudgetShared checks that one principal cannot use up the budget of all, whatever it uses it for.
func TestBudgetShared(t *testing.T) {
	s := (&world{run: shell}).server()
	s.Budget, s.Shared = 1<<20, true
	taken := map[string]int{}
	for _, who := range []string{"token:a", "token:a", "token:b", "token:c"} {
		for s.reserve(who, 1<<10) {
			taken[who] += 1 << 10
		}
	}
	if taken["token:a"] != 512<<10 || taken["token:b"] != 256<<10 || taken["token:c"] != 128<<10 {
		t.Errorf("%v", taken)
	}
	for who, n := range taken {
		s.release(who, n)
	}
	if held, holders := s.held.Held(); held != 0 || holders != 0 {
		t.Errorf("%d bytes of %d", held, holders)
	}
	p := initialized(t, s)
	m := p.answer(p.ask("command/exec", `{"command":["write","600000"],"disableOutputCap":true}`))
	if m.Error == nil || !strings.Contains(m.Error.Message, "the output does not fit into the server's budget") {
		t.Errorf("%.300s", m.raw)
	}
	if r := p.result(p.ask("command/exec", `{"command":["write","500000"],"disableOutputCap":true}`)); len(*r.Stdout) != 500000 {
		t.Errorf("%d bytes", len(*r.Stdout))
	}
}

// running starts a long-running process and returns its id.
func (p *peer) running() string {
	p.ask("command/exec", `{"command":["sleep"],"processId":"running"}`)
	return "running"
}

// TestSpawn checks that process/spawn is answered before any output of the process, and that its exit is reported last.
func TestSpawn(t *testing.T) {
	w := &world{run: shell}
	p := initialized(t, w.server())
	spawn := p.ask("process/spawn", `{"command":["cat"],"processHandle":"h","cwd":"/srv/app","streamStdin":true,"streamStdoutStderr":true}`)
	if m := p.answer(spawn); string(m.Result) != "{}" {
		t.Error(m.raw)
	}
	p.must("process/writeStdin", `{"processHandle":"h","deltaBase64":"aGVsbG8="}`)
	p.until("delta", func(m arrival) bool { return m.Params.Delta == "aGVsbG8=" })
	p.must("process/kill", `{"processHandle":"h"}`)
	end := p.until("end", func(m arrival) bool { return m.Method == "process/exited" })
	want := `{"method":"process/exited","params":{"processHandle":"h","exitCode":137,"stdout":"","stderr":"","stdoutCapReached":false,"stderrCapReached":false,"outputDrainTimedOut":false}}`
	if end.raw != want {
		t.Errorf("%s, want %s", end.raw, want)
	}
	p.must("process/spawn", `{"command":["print","12345"],"processHandle":"h","cwd":"/srv/app","outputBytesCap":3}`)
	end = p.until("end", func(m arrival) bool { return m.Params.Stdout != "" })
	if end.Params.Stdout != "123" || !*end.Params.StdoutCap || *end.Params.StderrCap {
		t.Error(end.raw)
	}
	// The order of all messages.
	texts, _ := p.all()
	answered := false
	for _, m := range texts {
		answered = answered || string(m.ID) == spawn
		if m.Params.ProcessHandle == "h" && !answered {
			t.Errorf("before the answer: %s", m.raw)
		}
	}
}

// TestSpawnLate checks that a refusal after the answer to process/spawn is reported in process/exited.
func TestSpawnLate(t *testing.T) {
	refuse := make(chan struct{})
	w := &world{run: func(ctx context.Context, io job.Stdio, argv []string) (job.Result, error) {
		<-refuse
		return shell(ctx, io, []string{"missing"})
	}}
	p := initialized(t, w.server())
	p.must("process/spawn", `{"command":["x"],"processHandle":"h","cwd":"/srv/app"}`)
	close(refuse)
	end := p.until("end", func(m arrival) bool { return m.Method == "process/exited" })
	if *end.Params.ExitCode != 127 || end.Params.Stderr != "failed to spawn process: No such file or directory (os error 2)\n" {
		t.Error(end.raw)
	}
}
