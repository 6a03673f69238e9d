package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A modelCall is a call of a tool by a scripted model.
type modelCall struct {
	name, id string
	args     object
}

// A model answers requests of the Responses API by its script: each with the next call, and then with a message.
type model struct {
	url   string
	calls []modelCall

	mu      sync.Mutex
	asked   int               // guarded by mu
	outputs map[string]string // guarded by mu: what the tools returned, by the id of the call
}

func scriptedModel(t *testing.T, calls ...modelCall) *model {
	t.Helper()
	m := &model{calls: calls, outputs: map[string]string{}}
	s := httptest.NewServer(http.HandlerFunc(m.answer))
	t.Cleanup(s.Close)
	m.url = s.URL
	return m
}

func (m *model) answer(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Input []struct {
			Type   string
			ID     string `json:"call_id"`
			Output json.RawMessage
		}
	}
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/responses") || json.NewDecoder(r.Body).Decode(&body) != nil {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"models":[],"data":[]}`))
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, item := range body.Input {
		if strings.HasSuffix(item.Type, "_call_output") {
			var text string
			if json.Unmarshal(item.Output, &text) != nil {
				text = string(item.Output)
			}
			m.outputs[item.ID] = text
		}
	}
	item := object{"type": "message", "role": "assistant", "content": []any{object{"type": "output_text", "text": "done"}}}
	if m.asked < len(m.calls) {
		call := m.calls[m.asked]
		args, _ := json.Marshal(call.args)
		item = object{"type": "function_call", "name": call.name, "call_id": call.id, "arguments": string(args)}
	}
	m.asked++
	id := fmt.Sprint("resp", m.asked)
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range []object{
		{"type": "response.created", "response": object{"id": id}},
		{"type": "response.output_item.done", "item": item},
		{"type": "response.completed", "response": object{"id": id, "usage": object{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}}},
	} {
		text, _ := json.Marshal(event)
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event["type"], text)
	}
}

// output returns what the call of a tool returned, as the agent told the model.
func (m *model) output(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.outputs[id]
}
