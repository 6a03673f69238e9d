package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"corral/internal/jsonrpc"
	"corral/mcp/tool"
)

// testTimeout bounds waits for events that should occur at once; a busy machine may need longer.
const testTimeout = 2 * time.Minute

func awaitClosed(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(testTimeout):
		t.Fatalf("%s: not within %s", what, testTimeout)
	}
}

func cancelled(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"enough"}}`
}

const ping = `{"jsonrpc":"2.0","id":"ping","method":"ping"}`

// A gated tool reports when it begins and ends, and blocks in between until it is released.
type gated struct {
	*fake
	began, ended chan string
	letGo        chan struct{}
	causes       chan error
}

func newGated() *gated {
	g := &gated{began: make(chan string, 1000), ended: make(chan string, 1000), letGo: make(chan struct{}), causes: make(chan error, 1000)}
	g.fake = newFake("gated", func(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
		g.began <- string(arguments)
		defer func() { g.ended <- string(arguments) }()
		select {
		case <-g.letGo:
			return tool.Result{Structured: map[string]any{"ok": true}}, nil
		case <-ctx.Done():
			g.causes <- context.Cause(ctx)
			return tool.Result{}, ctx.Err()
		}
	})
	return g
}

func (g *gated) wait(t *testing.T, c <-chan string, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(testTimeout):
		t.Fatalf("the tool did not report: %s", what)
	}
}

// TestCancel: a cancelled call ends at once and gets no response, however its id is encoded.
func TestCancel(t *testing.T) {
	for _, row := range []struct{ id, cancel string }{
		{"7", "7"}, {`"a"`, `"a"`}, {`"a"`, `"\u0061"`}, {"9007199254740993", "9007199254740993"},
	} {
		g := newGated()
		k := dial(t, New(Options{Tools: []tool.Tool{g}}), tool.Caller{})
		k.write(toCall(row.id, "gated", "{}"))
		g.wait(t, g.began, "begun")
		k.write(cancelled(`"other"`), cancelled(row.cancel), cancelled(row.cancel), cancelled("{}"), cancelled("null"))
		g.wait(t, g.ended, "ended")
		if cause := <-g.causes; !errors.Is(cause, errCancelled) {
			t.Errorf("cause: %v", cause)
		}
		if m := k.ask(ping); string(m.ID) != `"ping"` {
			t.Errorf("%s: a cancelled call got a response: %s", row.id, m.raw)
		}
	}
}

// TestCancelBeforeStart: a request cancelled before it is served never reaches its tool. The order depends on the scheduler,
// so the test cancels the context itself.
func TestCancelBeforeStart(t *testing.T) {
	g := newGated()
	s := New(Options{Tools: []tool.Tool{g}})
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errCancelled)
	m, err := parseMessage([]byte(toCall("1", "gated", "{}")))
	if err != nil {
		t.Fatal(err)
	}
	l := &line{s: s, out: newOutbox(io.Discard)}
	l.serve(ctx, m)
	s.answer(ctx, m, tool.Caller{}, func([]byte) {})
	if len(g.began) != 0 {
		t.Error("the tool was called")
	}
}

// TestCancelStorm: calls cancelled right after they were sent end without a response, and all others get one.
func TestCancelStorm(t *testing.T) {
	g := newGated()
	k := dial(t, New(Options{Tools: []tool.Tool{g}}), tool.Caller{})
	for n := range 100 {
		id := fmt.Sprint(n)
		k.write(toCall(id, "gated", "{}"))
		if n%2 == 0 {
			k.write(cancelled(id))
		}
	}
	go close(g.letGo)
	answered := map[string]int{}
	for range 50 {
		answered[string(k.read().ID)]++
	}
	if m := k.ask(ping); string(m.ID) != `"ping"` {
		t.Errorf("unexpected response: %s", m.raw)
	}
	for n := range 100 {
		if got := answered[fmt.Sprint(n)]; got != n%2 {
			t.Errorf("request %d has %d responses", n, got)
		}
	}
}

// TestSameID: an id cannot be reused while its request is in flight, and can be as soon as the response is there.
func TestSameID(t *testing.T) {
	g := newGated()
	k := dial(t, New(Options{Tools: []tool.Tool{g}}), tool.Caller{})
	k.write(toCall("1", "gated", "{}"))
	g.wait(t, g.began, "begun")
	if m := k.ask(toCall("1", "gated", "{}")); m.Error == nil || m.Error.Code != jsonrpc.CodeRequest {
		t.Errorf("a second request of the same id: %s", m.raw)
	}
	close(g.letGo)
	for range 200 {
		if m := k.read(); m.Error != nil || m.Result.IsError {
			t.Fatalf("%s", m.raw)
		}
		k.write(toCall("1", "gated", "{}"))
	}
}

// TestInFlightLimit: calls above the limit are refused with a tool error, and the others continue and get a response each.
func TestInFlightLimit(t *testing.T) {
	g := newGated()
	k := dial(t, New(Options{Tools: []tool.Tool{g}}), tool.Caller{})
	for n := range maxInFlight {
		k.write(toCall(fmt.Sprint(n), "gated", "{}"))
	}
	m := k.ask(toCall(`"more"`, "gated", "{}"))
	if string(m.ID) != `"more"` || !m.Result.IsError || !strings.Contains(string(m.Result.Structured), tool.CodeUnavailable) {
		t.Errorf("%s", m.raw)
	}
	if m := k.ask(ping); m.Error == nil || m.Error.Code != codeBusy {
		t.Errorf("%s", m.raw)
	}
	close(g.letGo)
	seen := map[string]bool{}
	for range maxInFlight {
		m := k.read()
		if m.Result.IsError || seen[string(m.ID)] {
			t.Errorf("%s", m.raw)
		}
		seen[string(m.ID)] = true
	}
	if m := k.ask(ping); m.Error != nil {
		t.Errorf("%s", m.raw)
	}
}

// TestInFlightBytesLimit: the bytes of the requests in flight are limited, too.
func TestInFlightBytesLimit(t *testing.T) {
	var f inflight
	no := func(error) {}
	for n := 0; ; n++ {
		if err := f.add(json.RawMessage(fmt.Sprint(n)), maxLine, no); err != nil {
			if n != maxInFlightBytes/maxLine {
				t.Errorf("refused after %d: %v", n, err)
			}
			break
		}
	}
}

// TestEOF: at the end of the input, requests that were read get responses, and then ServeStdio returns.
func TestEOF(t *testing.T) {
	g := newGated()
	k := dial(t, New(Options{Tools: []tool.Tool{g}}), tool.Caller{})
	k.write(toCall("1", "gated", "{}"), toCall("2", "gated", "{}"))
	_, _ = io.WriteString(k.in, toCall("3", "gated", "{}")) // the last line is not terminated
	_ = k.in.Close()
	for range 3 {
		g.wait(t, g.began, "begun")
	}
	select {
	case err := <-k.done:
		t.Fatalf("returned with requests in flight: %v", err)
	default:
	}
	close(g.letGo)
	for range 3 {
		if m := k.read(); m.Result.IsError {
			t.Errorf("%s", m.raw)
		}
	}
	if err := <-k.done; err != nil {
		t.Errorf("%v", err)
	}
	k.done <- nil
}

// TestEOFCancelsAfterTimeout: after the end of the input, a call that does not end is cancelled and answered.
func TestEOFCancelsAfterTimeout(t *testing.T) {
	s := New(Options{Tools: []tool.Tool{newFake("hang", func(ctx context.Context, _ json.RawMessage) (tool.Result, error) {
		<-ctx.Done()
		return tool.Result{}, ctx.Err()
	})}})
	s.answerTime = 10 * time.Millisecond
	k := dial(t, s, tool.Caller{})
	k.write(toCall("1", "hang", "{}"))
	_ = k.in.Close()
	if m := k.read(); string(m.ID) != "1" {
		t.Errorf("%s", m.raw)
	}
	select {
	case err := <-k.done:
		if err != nil {
			t.Errorf("%v", err)
		}
		k.done <- nil
	case <-time.After(testTimeout):
		t.Fatal("ServeStdio did not return")
	}
}

// TestImmediateEOF: a host that starts a server and closes it at once sees it exit.
func TestImmediateEOF(t *testing.T) {
	var out bytes.Buffer
	err := testServer(t).ServeStdio(context.Background(), strings.NewReader(initialize("2025-06-18")+"\n\n\r\n"+
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\r\n"+`{"jsonrpc":"2.0","id":1,"result":{}}`+"\n"), &out, tool.Caller{})
	if err != nil || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("%v, output %s", err, out.String())
	}
}

// TestContextEndsServeStdio: when the context ends, calls are cancelled, responses written, and a tool that ignores
// its context is left behind.
func TestContextEndsServeStdio(t *testing.T) {
	deaf := make(chan struct{})
	defer close(deaf)
	for name, target := range map[string]tool.Tool{
		"hang": newFake("t", func(ctx context.Context, _ json.RawMessage) (tool.Result, error) {
			<-ctx.Done()
			return tool.Result{Structured: map[string]any{"ok": false}}, nil
		}),
		"deaf": newFake("t", func(context.Context, json.RawMessage) (tool.Result, error) {
			<-deaf
			return tool.Result{}, nil
		}),
	} {
		k := dial(t, New(Options{Tools: []tool.Tool{target}}), tool.Caller{})
		k.write(toCall("1", "t", "{}"))
		k.ask(ping)
		k.stop()
		if name == "hang" {
			if m := k.read(); string(m.ID) != "1" {
				t.Errorf("%s", m.raw)
			}
		}
		select {
		case err := <-k.done:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
			k.done <- nil
		case <-time.After(testTimeout):
			t.Fatalf("%s: ServeStdio did not return", name)
		}
	}
}

// TestBrokenOutput: when the client closes its end, calls are cancelled, and ServeStdio returns an error.
func TestBrokenOutput(t *testing.T) {
	g := newGated()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	defer func() { _ = inW.Close() }()
	done := make(chan error, 1)
	go func() {
		done <- New(Options{Tools: []tool.Tool{g}}).ServeStdio(context.Background(), inR, outW, tool.Caller{})
	}()
	_, _ = io.WriteString(inW, toCall("1", "gated", "{}")+"\n")
	g.wait(t, g.began, "begun")
	_ = outR.Close()
	_, _ = io.WriteString(inW, ping+"\n")
	g.wait(t, g.ended, "ended")
	if err := <-done; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v", err)
	}
}

// TestHangup: a killed host closes both pipes. Although nothing is written that would fail, the call is cancelled.
func TestHangup(t *testing.T) {
	g := newGated()
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = inR.Close(), outW.Close() }()
	done := make(chan error, 1)
	go func() {
		done <- New(Options{Tools: []tool.Tool{g}}).ServeStdio(context.Background(), inR, outW, tool.Caller{})
	}()
	_, _ = io.WriteString(inW, toCall("1", "gated", "{}")+"\n")
	g.wait(t, g.began, "begun")
	_, _ = inW.Close(), outR.Close()
	g.wait(t, g.ended, "ended")
	select {
	case err := <-done:
		if !errors.Is(err, syscall.EPIPE) {
			t.Errorf("%v", err)
		}
	case <-time.After(testTimeout):
		t.Fatal("ServeStdio did not return")
	}
}

// TestBatchByVersion: protocol versions with batches get one array of responses; others get an error.
func TestBatchByVersion(t *testing.T) {
	k := dial(t, testServer(t), tool.Caller{})
	k.ask(initialize("2025-03-26"))
	k.write(`[` + ping + `,{"jsonrpc":"2.0","method":"notifications/initialized"},` + toCall("2", "echo", "{}") + `,{"x":1}]`)
	var list []incoming
	line, err := k.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &list)
	}
	if err != nil || len(list) != 3 {
		t.Fatalf("%v: %s", err, line)
	}
	k.write(`[{"jsonrpc":"2.0","method":"notifications/initialized"}]`) // gets no response
	for _, bad := range []string{`[]`, `[` + strings.Repeat(ping+",", maxBatch) + ping + `]`} {
		if m := k.ask(bad); m.Error == nil || m.Error.Code != jsonrpc.CodeRequest {
			t.Errorf("%s", m.raw)
		}
	}
	k.ask(initialize("2025-06-18"))
	if m := k.ask(`[` + ping + `]`); m.Error == nil || m.Error.Code != jsonrpc.CodeRequest {
		t.Errorf("%s", m.raw)
	}
}
