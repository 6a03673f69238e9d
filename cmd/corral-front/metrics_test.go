package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"corral/internal/config"
	"corral/internal/test/mcptest"
	"corral/internal/test/sandboxtest"
)

// metered starts corral serve for two principals: user, with a session, who may use all tools, and reader, who may read metrics
// alone.
func metered(t *testing.T) (w *web, user, session, reader string) {
	t.Helper()
	user, hash := config.NewToken()
	reader, hash2 := config.NewToken()
	w = newPlace(t).web(t, daemon(t), fmt.Sprintf("principals:\n  - {name: hidden-user, token_sha256: \"%x\"}\n"+
		"  - {name: prometheus, token_sha256: \"%x\", tools: [metrics]}\n", hash, hash2))
	_, session, _ = w.post(user, "", hello)
	return w, user, session, reader
}

// TestServeMetrics: corral serve counts calls and their jobs, for a principal with tools: [metrics] alone, which can call no tool.
func TestServeMetrics(t *testing.T) {
	sandboxtest.RequireJails(t)
	w, user, session, reader := metered(t)
	w.call(user, session, "runtime_execute", `{"repoId":"app","runtime":"shell","code":"echo stored","outputMode":"summary"}`)
	w.call(user, session, "runtime_execute", `{"repoId":"app","runtime":"shell","code":"sleep 60","timeoutMs":200}`)
	w.call(user, session, "runtime_execute", `{"repoId":"app","runtime":"shell","code":"true","executable":"/bin/evil-name"}`)
	for n := range 50 {
		message := fmt.Sprintf(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"evil-name-%d","arguments":{}}}`, n)
		w.post(user, session, message)
	}
	_, other, _ := w.post(reader, "", hello)
	if _, _, a := w.post(reader, other, `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"runtime_execute","arguments":{}}}`); a.Error == nil {
		t.Error("a reader of metrics called a tool")
	}
	scrape := func(token string) (int, string) {
		t.Helper()
		return mcptest.Fetch(t, http.MethodGet, strings.TrimSuffix(w.url, "/mcp")+"/metrics", token)
	}

	if code, _ := scrape(user); code != http.StatusForbidden {
		t.Errorf("a principal that may use all tools: %d", code)
	}
	if code, _ := scrape("corral_wrong"); code != http.StatusUnauthorized {
		t.Errorf("a wrong token: %d", code)
	}
	code, text := scrape(reader)
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	for _, want := range []string{
		`corral_calls_total{outcome="ok",tool="runtime_execute"} `,
		`corral_calls_total{outcome="protocol_error",tool="runtime_execute"} 1`,
		`corral_calls_total{outcome="protocol_error",tool="unknown"} 50`,
		`corral_jobs_total{status="success"} 1`, `corral_jobs_total{status="timeout"} 1`, `corral_jobs_total{status="denied"} 1`,
		`corral_denials_total{rule="executable.compatible"} 1`, `corral_limits_hit_total{limit="time"} 1`, `corral_job_stage_seconds_count{stage="run"} 2`,
		`corral_supervisor_up 1`, `corral_jobs_running 0`, `corral_jobs_running_limit 8`, `corral_jobs_waiting_limit 64`,
		`corral_artifacts_limit_bytes 1.073741824e+09`, `corral_http_sessions 2`, `corral_artifacts_bytes `,
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("no line %q", want)
		}
	}
	if strings.Contains(text, "evil") || strings.Contains(text, "hidden") || strings.Contains(text, "app\"") || strings.Contains(text, "corral_artifacts_bytes 0\n") {
		t.Error("a name of a client, principal or repository is shown, or nothing is stored")
	}
	if t.Failed() {
		t.Log(text)
	}
}
