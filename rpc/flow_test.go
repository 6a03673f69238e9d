package rpc

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"corral/internal/pipe"
	"corral/internal/test/sandboxtest"
	"corral/job"
)

// TestFinalAnswerFollowsDeltas checks that the answer to command/exec follows all deltas of the process.
func TestFinalAnswerFollowsDeltas(t *testing.T) {
	w := &world{run: shell}
	p := initialized(t, w.server())
	const size = 400_000
	runs := sandboxtest.Scale(200)
	for from := 0; from < runs; from += 50 {
		var ids []string
		for n := range 50 {
			ids = append(ids, p.ask("command/exec", fmt.Sprintf(`{"command":["write","%d"],"processId":"%d","streamStdoutStderr":true}`, size, from+n)))
		}
		for _, id := range ids {
			p.result(id)
		}
		texts, _ := p.all()
		got, over := map[string]int{}, map[string]bool{}
		for _, m := range texts {
			if m.Method != "" {
				if over[m.Params.ProcessID] {
					t.Fatalf("%s: delta after the final answer", m.Params.ProcessID)
				}
				got[m.Params.ProcessID] += base64.StdEncoding.DecodedLen(len(m.Params.Delta)) - strings.Count(m.Params.Delta, "=")
			}
			for n, id := range ids {
				if string(m.ID) == id {
					over[fmt.Sprint(from+n)] = true
				}
			}
		}
		for n := range ids {
			if got := got[fmt.Sprint(from+n)]; got != size {
				t.Fatalf("run %d: %d bytes", from+n, got)
			}
		}
		p.forget()
	}
}

// forget drops the texts received so far.
func (p *peer) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.texts = nil
}

// TestBurst sends exec and the requests that control it without waiting for answers, for many processes at once.
func TestBurst(t *testing.T) {
	w := &world{run: shell}
	p := initialized(t, w.server())
	const many = 100
	var execs, others []string
	for n := range many {
		execs = append(execs, p.ask("command/exec", fmt.Sprintf(`{"command":["cat"],"processId":"%d","streamStdin":true}`, n)))
		others = append(others,
			p.ask("command/exec/write", fmt.Sprintf(`{"processId":"%d","deltaBase64":"YQ=="}`, n)),
			p.ask("command/exec/terminate", fmt.Sprintf(`{"processId":"%d"}`, n)))
	}
	for _, id := range others {
		if m := p.answer(id); m.Error != nil {
			t.Error(m.raw)
		}
	}
	for _, id := range execs {
		if r := p.result(id); *r.ExitCode != 137 {
			t.Errorf("%+v", r)
		}
	}
	// Once a process has been answered, its id can be reused.
	for n := range many {
		execs[n] = p.ask("command/exec", fmt.Sprintf(`{"command":["true"],"processId":"%d"}`, n))
	}
	for _, id := range execs {
		p.result(id)
	}
}

// TestProcessLimit checks that the number of processes per connection is bounded.
func TestProcessLimit(t *testing.T) {
	w := &world{run: shell}
	p := initialized(t, w.server())
	for n := range maxProcesses {
		p.ask("command/exec", fmt.Sprintf(`{"command":["sleep"],"processId":"%d"}`, n))
	}
	if m := p.answer(p.ask("command/exec", `{"command":["true"]}`)); m.Error == nil || m.Error.Code != codeBusy {
		t.Error(m.raw)
	}
}

// TestStall checks that a client that does not read stalls its own processes, with little memory, while others are
// served.
func TestStall(t *testing.T) {
	var written atomic.Int64
	w := &world{run: shell}
	s := w.server()
	w.run = func(ctx context.Context, std job.Stdio, argv []string) (job.Result, error) {
		if argv[0] != "flood" {
			return shell(ctx, std, argv)
		}
		killable(ctx, func() {
			block := make([]byte, 64<<10)
			for err := error(nil); err == nil; written.Add(int64(len(block))) {
				_, err = std.Stdout.Write(block)
			}
		})
		return job.Result{}, nil
	}
	p := dial(t, s)
	take := func() arrival {
		p.take(<-p.conn.out)
		texts, _ := p.all()
		return texts[len(texts)-1]
	}
	p.ask("initialize", `{"clientInfo":{"name":"x"}}`)
	take()
	const floods = 20
	var memory runtime.MemStats
	for n := range floods {
		p.ask("command/exec", fmt.Sprintf(`{"command":["flood"],"processId":"%d","streamStdoutStderr":true}`, n))
	}
	// Wait until all processes are blocked.
	var before int64 = -1
	sandboxtest.Eventually(t, 20*time.Second, "the processes wait", func() bool {
		time.Sleep(100 * time.Millisecond)
		now := written.Load()
		still := now == before
		before = now
		return still
	})
	runtime.GC()
	runtime.ReadMemStats(&memory)
	// Each process has written at most a full pipe and the buffer in transit.
	if limit := int64(floods * (pipe.Large + 2*pipe.LargeRead + 64<<10)); before > limit+2*maxDeltas {
		t.Errorf("%d bytes were read from the processes", before)
	}
	if memory.HeapAlloc > 64<<20 {
		t.Errorf("%d MiB are in use", memory.HeapAlloc>>20)
	}
	other := initialized(t, s)
	if r := other.result(other.ask("command/exec", `{"command":["echo","x"]}`)); *r.Stdout != "x\n" {
		t.Errorf("%+v", r)
	}
	// A request sent meanwhile takes effect, and is answered once the client reads.
	id := p.ask("command/exec/terminate", `{"processId":"3"}`)
	for m := take(); string(m.ID) != id; {
		m = take()
	}
	exec := "5" // the fourth flood's
	for m := take(); string(m.ID) != exec; {
		m = take()
	}
}

// TestUnreadAnswers checks that requests are no longer read from a client with too many unread answers.
func TestUnreadAnswers(t *testing.T) {
	w := &world{run: shell}
	p := dial(t, w.server())
	long := `{"id":"` + strings.Repeat("x", 1000) + `","method":"x"}`
	asked := 0
	for stalled := false; !stalled; {
		select {
		case p.conn.in <- []byte(long):
			asked++
		case <-time.After(sandboxtest.Slow(500 * time.Millisecond)):
			stalled = true
		}
		if asked > 10*maxAnswers/1000 {
			t.Fatalf("%d requests were read", asked)
		}
	}
	// Once the client reads, its requests are read again.
	for range asked {
		<-p.conn.out
	}
	p.conn.in <- []byte(long)
	<-p.conn.out
}

// TestGone checks that all processes of a client end with its connection, in whatever way it ends, and the error of
// Serve.
func TestGone(t *testing.T) {
	for name, end := range map[string]func(p *peer, cancel func()){
		"end of input": func(p *peer, _ func()) { close(p.conn.in) },
		"closed":       func(p *peer, _ func()) { p.conn.Close() },
		"stopped":      func(_ *peer, cancel func()) { cancel() },
	} {
		for _, reads := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", reads ", reads), func(t *testing.T) {
				var running atomic.Int64
				w := &world{run: func(ctx context.Context, io job.Stdio, argv []string) (job.Result, error) {
					running.Add(1)
					defer running.Add(-1)
					return shell(ctx, io, argv)
				}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := w.server()
				p := dialAs(ctx, t, s, Caller{})
				if reads {
					go p.read()
				}
				p.ask("initialize", `{"clientInfo":{"name":"x"}}`)
				p.ask("command/exec", `{"command":["yes"],"processId":"1","streamStdoutStderr":true}`)
				p.ask("command/exec", `{"command":["cat"],"processId":"2","streamStdin":true}`)
				p.ask("command/exec/write", `{"processId":"2","deltaBase64":"YQ=="}`)
				p.ask("process/spawn", `{"command":["sleep"],"processHandle":"1","cwd":"/srv/app"}`)
				p.ask("command/exec", `{"command":["sleep"]}`)
				sandboxtest.Eventually(t, 10*time.Second, "four run", func() bool { return running.Load() == 4 })
				end(p, cancel)
				select {
				case <-p.ended:
				case <-time.After(sandboxtest.Slow(time.Minute)):
					t.Fatal("Serve has not returned")
				}
				if n := running.Load(); n != 0 {
					t.Errorf("%d processes still run", n)
				}
				if held, _ := s.held.Held(); held != 0 {
					t.Errorf("%d bytes of the budget are still reserved", held)
				}
				switch {
				case name == "stopped" && !errors.Is(p.err, context.Canceled), name == "end of input" && reads && p.err != nil,
					name == "closed" && !errors.Is(p.err, os.ErrClosed):
					t.Error(p.err)
				}
			})
		}
	}
}

// TestLastAnswers checks that a client that closed its sending side still gets the results of its processes.
func TestLastAnswers(t *testing.T) {
	w := &world{run: shell}
	p := initialized(t, w.server())
	echo := p.ask("command/exec", `{"command":["echo","x"]}`)
	sleep := p.ask("command/exec", `{"command":["sleep"]}`)
	close(p.conn.in)
	if r := p.result(sleep); *r.ExitCode != 137 {
		t.Errorf("%+v", r)
	}
	p.result(echo)
	<-p.ended
}

// TestStreamsHeld checks that the end of a process is reported although another process still holds its pipe.
func TestStreamsHeld(t *testing.T) {
	var held []*os.File
	w := &world{run: func(_ context.Context, std job.Stdio, _ []string) (job.Result, error) {
		file, err := pollable(std.Stdout)
		held = append(held, file)
		_, _ = io.Copy(file, bytes.NewReader([]byte("said")))
		return job.Result{}, err
	}}
	p := initialized(t, w.server())
	if r := p.result(p.ask("command/exec", `{"command":["x"]}`)); *r.Stdout != "said" {
		t.Errorf("%+v", r)
	}
	p.must("process/spawn", `{"command":["x"],"processHandle":"h","cwd":"/srv/app"}`)
	m := p.until("end", func(m arrival) bool { return m.Method == "process/exited" })
	if m.Params.Stdout != "said" || !*m.Params.Drain {
		t.Error(m.raw)
	}
	for _, f := range held {
		f.Close()
	}
}
