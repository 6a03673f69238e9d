package server

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"corral/mcp/tool"
)

// TestReplace: requests that come after Replace are served by the new tools, a call in progress by the tool that it called. The
// caller of a tool is told which repositories were removed.
func TestReplace(t *testing.T) {
	begun, hold := make(chan struct{}), make(chan struct{})
	slow := newFake("slow", func(context.Context, json.RawMessage) (tool.Result, error) {
		close(begun)
		<-hold
		return tool.Result{Structured: map[string]any{"ok": true}}, nil
	})
	s := New(Options{Version: "1", Tools: []tool.Tool{slow, newFake("gone", nil)}})
	k := dial(t, s, tool.Caller{Principal: "user:ada", Progress: func(float64, string) {}})
	k.ask(initialize("2025-11-25"))
	k.write(toCall("1", "slow", "{}"))
	<-begun
	added := newFake("added", func(ctx context.Context, _ json.RawMessage) (tool.Result, error) {
		return tool.Result{Text: strings.Join(tool.CallerOf(ctx).Removed, " "), Whole: true}, nil
	})
	s.Replace([]tool.Tool{added}, nil, []string{"app"})
	if m := k.ask(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`); len(m.Result.Tools) != 1 || m.Result.Tools[0].Name != "added" {
		t.Errorf("listed: %s", m.raw)
	}
	if m := k.ask(toCall("3", "gone", "{}")); m.Error == nil {
		t.Errorf("a tool that was removed: %s", m.raw)
	}
	if m := k.ask(toCall("4", "added", "{}")); m.Error != nil || m.Result.Content[0].Text != "app" {
		t.Errorf("a tool that was added: %s", m.raw)
	}
	close(hold)
	if m := k.read(); string(m.ID) != "1" || m.Error != nil || m.Result.IsError {
		t.Errorf("the call in progress: %s", m.raw)
	}
}

// TestReplaceRace: calls during many replacements are all answered by a tool.
func TestReplaceRace(t *testing.T) {
	s := testServer(t)
	var all sync.WaitGroup
	stop := make(chan struct{})
	all.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
				s.Replace(testTools(), nil, []string{"app"})
			}
		}
	})
	var clients sync.WaitGroup
	for range 3 {
		k := dial(t, s, tool.Caller{Principal: "user:ada", Progress: func(float64, string) {}})
		clients.Go(func() {
			for range 200 {
				if m := k.ask(toCall("1", "echo", `{"code":"x"}`)); m.Error != nil || m.Result.IsError {
					t.Errorf("%s", m.raw)
				}
				if m := k.ask(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`); len(m.Result.Tools) < 5 {
					t.Errorf("%s", m.raw)
				}
			}
		})
	}
	clients.Wait()
	close(stop)
	all.Wait()
}
