package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"corral/internal/jsonrpc"
	"corral/mcp/tool"
)

// TestOverlongLine: a line above the maximum is not buffered, gets an error under its id, and the next line is served.
func TestOverlongLine(t *testing.T) {
	k := dial(t, testServer(t), tool.Caller{})
	piece := strings.Repeat("x", 1<<20)
	for _, row := range []struct{ before, after, id string }{
		{`{"method":"tools/call","params":{"name":"echo","arguments":{"id":5,"code":"`, `"}},"jsonrpc":"2.0","id":42}`, "42"},
		{`{"id":"first","jsonrpc":"2.0","method":"x","params":{"code":"`, `"}}`, `"first"`},
		{`{"method":"x","params":{"id":1,"code":"\\\"},\"id\":3`, `"},"id" : 7 }`, "7"},
		{`{"method":"x","params":{"code":"`, `"}}`, "null"},
		{`nonsense `, ` nonsense`, "null"},
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		_, _ = io.WriteString(k.in, row.before)
		for range 40 { // the pipe is unbuffered: what was written has been read
			_, _ = io.WriteString(k.in, piece)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 30<<20 {
			t.Errorf("%d MiB are buffered", grown>>20)
		}
		k.write(row.after)
		m := k.read()
		if m.Error == nil || m.Error.Code != jsonrpc.CodeRequest || string(m.ID) != row.id {
			t.Errorf("%s: %.300s", row.after, m.raw)
		}
		if m := k.ask(ping); string(m.ID) != `"ping"` {
			t.Errorf("the next line: %s", m.raw)
		}
	}
	fits := strings.Repeat("x", maxLine-len(toCall("1", "denies", `{"code":""}`)))
	if m := k.ask(toCall("1", "denies", `{"code":"`+fits+`"}`)); m.Error != nil || !strings.Contains(string(m.Result.Structured), tool.CodeDenied) {
		t.Errorf("a message that just fits: %.300s", m.raw)
	}
	if m := k.ask(toCall("1", "denies", `{"code":"x`+fits+`"}`)); m.Error == nil || string(m.ID) != "1" {
		t.Errorf("one byte more: %.300s", m.raw)
	}
}

// TestStalledClientIsBounded: a client that does not read uses bounded memory, does not block others, and gets all
// responses once it reads.
func TestStalledClientIsBounded(t *testing.T) {
	const calls = 100 // their responses have 1 MiB each
	var running atomic.Int64
	target := newFake("big", func(context.Context, json.RawMessage) (tool.Result, error) {
		defer running.Add(1)
		return tool.Result{Structured: map[string]any{"out": strings.Repeat("x", 1<<20)}}, nil
	})
	s := New(Options{Tools: []tool.Tool{target}})
	k, other := dial(t, s, tool.Caller{}), dial(t, s, tool.Caller{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		for n := range calls {
			if _, err := io.WriteString(k.in, toCall(fmt.Sprint(n), "big", "{}")+"\n"); err != nil {
				return
			}
		}
	}()
	for last, still := int64(-1), 0; still < 10; still++ { // until it is stable
		if now := running.Load(); now != last {
			last, still = now, 0
		}
		for range 20 {
			if m := other.ask(ping); string(m.ID) != `"ping"` {
				t.Fatalf("%s", m.raw)
			}
		}
		runtime.GC()
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > maxWaiting+20<<20 { // the queue, and responses on their way to it
		t.Errorf("%d MiB buffered for a client that does not read", grown>>20)
	}
	seen := map[string]bool{}
	for range calls {
		m := k.read()
		if m.ID == nil || seen[string(m.ID)] {
			t.Fatalf("%.200s", m.raw)
		}
		seen[string(m.ID)] = true
	}
	awaitClosed(t, "the rest of the requests", wrote)
}

// TestStalledProgress: progress for a client that does not read is dropped, and the tool never blocks.
func TestStalledProgress(t *testing.T) {
	var last lastWrite
	l := &line{out: newOutbox(&last)} // Run is not called: nothing is written
	for range 100_000 {
		l.note(progressNote(json.RawMessage("1"), 1, "a step"))
	}
	if n := l.out.Waiting(); n > maxWaitingNotes+1000 {
		t.Errorf("%d bytes queued", n)
	}
	l.put(json.RawMessage("1"), make([]byte, maxWaiting-maxWaitingNotes-2000))
	l.put(json.RawMessage("2"), make([]byte, 1<<20))
	l.out.Close()
	l.out.Run()
	if !bytes.Contains(last, []byte(`"id":2,"error"`)) {
		t.Errorf("the response was not replaced by an error: %.100s", last)
	}
}

// A lastWrite keeps what was written last.
type lastWrite []byte

func (w *lastWrite) Write(p []byte) (int, error) {
	*w = p
	return len(p), nil
}

// TestReadingPausesForStalledClient: the server stops reading from a client with many unread responses until it reads.
func TestReadingPausesForStalledClient(t *testing.T) {
	l := &line{s: testServer(t), out: newOutbox(io.Discard)}
	l.put(nil, make([]byte, maxWaitingRead+1))
	in := strings.NewReader(ping + "\n")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	l.read(ctx, newLineReader(in, maxLine), ended)
	if err := <-ended; err != nil || in.Len() != int(in.Size()) {
		t.Errorf("%d of %d bytes unread, %v", in.Len(), in.Size(), err)
	}
	go l.out.Run()
	l.read(t.Context(), newLineReader(in, maxLine), ended)
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
	l.out.Close()
	awaitClosed(t, "the last answers", l.out.Done())
}

// TestPingDuringBusyCalls: a ping is answered while other calls send as much progress as they can.
func TestPingDuringBusyCalls(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	spin := newFake("spin", func(call context.Context, _ json.RawMessage) (tool.Result, error) {
		for n := 0; ctx.Err() == nil && call.Err() == nil; n++ {
			tool.CallerOf(call).Progress(float64(n), strings.Repeat("x", 1000))
			runtime.Gosched()
		}
		return tool.Result{Structured: map[string]any{"ok": true}}, nil
	})
	k := dial(t, New(Options{Tools: []tool.Tool{spin}}), tool.Caller{})
	for n := range 4 {
		k.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"spin","_meta":{"progressToken":%d}}}`, n, n))
	}
	for range 20 {
		k.write(ping)
		for m := k.read(); string(m.ID) != `"ping"`; m = k.read() {
			if m.Method != "notifications/progress" {
				t.Fatalf("%s", m.raw)
			}
		}
	}
}
