package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// A dialect is an API of a model, as one of its hosts speaks it.
type dialect struct {
	header, scheme string // where the key is
	// reply answers a request. step is the command that the model asks for, "" if it asks for none; n numbers the requests.
	reply func(w http.ResponseWriter, r *http.Request, stream bool, step string, n int)
}

var apis = map[string]dialect{
	"api.anthropic.com":                 {"X-Api-Key", "", messages},
	"api.openai.com":                    {"Authorization", "Bearer ", responses},
	"generativelanguage.googleapis.com": {"X-Goog-Api-Key", "", contents},
	"openrouter.ai":                     {"Authorization", "Bearer ", completions},
	"api.githubcopilot.com":             {"Authorization", "Bearer ", copilot},
	"api.github.com":                    {"Authorization", "Bearer ", copilot},
}

// ServeHTTP is the APIs: the model asks for one command after another, whenever it has tools.
func (p *place) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid != 0 && len(p.steps) == 0 {
		p.has, p.pid = holders(p.pid, key), 0
	}
	api := apis[r.Host]
	p.got = append(p.got, asked{strings.TrimPrefix(r.Header.Get(api.header), api.scheme), string(body)})
	var request struct {
		Stream bool              `json:"stream"`
		Tools  []json.RawMessage `json:"tools"`
	}
	_ = json.Unmarshal(body, &request)
	step := ""
	tools := len(request.Tools) > 0 || strings.Contains(string(body), `"additional_tools"`) // as Codex has them for newer models
	if tools && len(p.steps) > 0 {
		step, p.steps = p.steps[0], p.steps[1:]
	}
	api.reply(w, r, request.Stream, step, len(p.got))
}

// An object is one of JSON.
type object = map[string]any

// events writes server-sent events. Each is of the type that it says, if it says one.
func events(w http.ResponseWriter, list ...object) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range list {
		if e["type"] != nil {
			_, _ = fmt.Fprintf(w, "event: %s\n", e["type"])
		}
		data, _ := json.Marshal(e)
		_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
	}
}

// text is an object as JSON in a string.
func text(o object) string {
	b, _ := json.Marshal(o)
	return string(b)
}

// messages is Anthropic's API.
func messages(w http.ResponseWriter, _ *http.Request, stream bool, step string, n int) {
	block, delta, stop := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": "done"}, "end_turn"
	if step != "" {
		block = object{"type": "tool_use", "id": fmt.Sprintf("toolu_%d", n), "name": "Bash", "input": object{}}
		delta = object{"type": "input_json_delta", "partial_json": text(object{"command": step, "description": "test"})}
		stop = "tool_use"
	}
	message := object{
		"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []any{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": object{"input_tokens": 1, "output_tokens": 1},
	}
	if !stream {
		message["content"], message["stop_reason"] = []any{object{"type": "text", "text": "ok"}}, "end_turn"
		_ = json.NewEncoder(w).Encode(message)
		return
	}
	events(
		w, object{"type": "message_start", "message": message},
		object{"type": "content_block_start", "index": 0, "content_block": block},
		object{"type": "content_block_delta", "index": 0, "delta": delta},
		object{"type": "content_block_stop", "index": 0},
		object{"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 1}},
		object{"type": "message_stop"},
	)
}

// responses is OpenAI's API.
func responses(w http.ResponseWriter, r *http.Request, _ bool, step string, n int) {
	if r.Method == http.MethodGet {
		_ = json.NewEncoder(w).Encode(object{"models": []any{}, "data": []any{}})
		return
	}
	item := object{"type": "message", "role": "assistant", "content": []any{object{"type": "output_text", "text": "done"}}}
	if step != "" {
		item = object{
			"type": "function_call", "name": "exec_command", "call_id": fmt.Sprintf("call_%d", n), "arguments": text(object{"cmd": step}),
		}
	}
	usage := object{"input_tokens": 1, "input_tokens_details": nil, "output_tokens": 1, "output_tokens_details": nil, "total_tokens": 2}
	events(
		w, object{"type": "response.created", "response": object{"id": "resp_1"}},
		object{"type": "response.output_item.done", "item": item},
		object{"type": "response.completed", "response": object{"id": "resp_1", "usage": usage}},
	)
}

// contents is Google's API.
func contents(w http.ResponseWriter, r *http.Request, _ bool, step string, _ int) {
	part := object{"text": "done"}
	if step != "" {
		part = object{"functionCall": object{"name": "run_shell_command", "args": object{"command": step, "description": "test"}}}
	}
	reply := object{
		"candidates":    []any{object{"content": object{"role": "model", "parts": []any{part}}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
	}
	if strings.Contains(r.URL.Path, "stream") {
		events(w, reply)
		return
	}
	_ = json.NewEncoder(w).Encode(reply)
}

// completions is what OpenRouter, Copilot, and others have of OpenAI's former API.
func completions(w http.ResponseWriter, _ *http.Request, stream bool, step string, n int) {
	said, why := object{"role": "assistant", "content": "done"}, "stop"
	if step != "" {
		function := object{"name": "bash", "arguments": text(object{"command": step, "description": "test"})}
		call := object{"index": 0, "id": fmt.Sprintf("call_%d", n), "type": "function", "function": function}
		said, why = object{"role": "assistant", "content": nil, "tool_calls": []any{call}}, "tool_calls"
	}
	reply := func(choice, usage object) object {
		return object{"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []any{choice}, "usage": usage}
	}
	usage := object{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
	if !stream {
		_ = json.NewEncoder(w).Encode(reply(object{"index": 0, "message": said, "finish_reason": why}, usage))
		return
	}
	events(
		w, reply(object{"index": 0, "delta": said, "finish_reason": nil}, nil),
		reply(object{"index": 0, "delta": object{}, "finish_reason": why}, usage),
	)
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// copilot is GitHub's API as far as it says who the user is, and which models there are; and Copilot's.
func copilot(w http.ResponseWriter, r *http.Request, stream bool, step string, n int) {
	switch r.URL.Path {
	case "/chat/completions":
		completions(w, r, stream, step, n)
	case "/copilot_internal/user":
		_ = json.NewEncoder(w).Encode(object{
			"login": "ada", "access_type_sku": "copilot_individual", "copilot_plan": "individual", "chat_enabled": true, "cli_enabled": true,
			"endpoints": object{"api": "https://api.githubcopilot.com"},
		})
	case "/models":
		_ = json.NewEncoder(w).Encode(object{"object": "list", "data": []any{object{
			"id": "gpt-5", "name": "gpt-5", "object": "model", "vendor": "test", "version": "gpt-5", "model_picker_enabled": true,
			"is_chat_default": true, "policy": object{"state": "enabled"}, "supported_endpoints": []any{"/chat/completions"},
			"capabilities": object{
				"family": "gpt-5", "object": "model_capabilities", "type": "chat", "tokenizer": "o200k_base",
				"limits":   object{"max_context_window_tokens": 200000, "max_output_tokens": 16000, "max_prompt_tokens": 128000},
				"supports": object{"streaming": true, "tool_calls": true},
			},
		}}})
	default:
		http.NotFound(w, r)
	}
}
