package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"corral/internal/config"
	"corral/internal/test/sandboxtest"
)

// TestTraceThroughPrograms: the id of a client's trace finds one request in the log of the front-end, the audit log, the log of the
// supervisor, that of corral-egress, and what corral network log prints.
func TestTraceThroughPrograms(t *testing.T) {
	sandboxtest.RequireJails(t)
	p := newPlace(t)
	d := sandboxtest.Daemon(t, sandboxtest.DaemonOptions{Everyone: true, Config: "network: {allow: [{host: allowed.example.org}]}\n"})
	token, hash := config.NewToken()
	w := p.web(t, d, fmt.Sprintf("principals: [{name: a, token_sha256: \"%x\"}]\n", hash))
	const trace, other = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331b7ad6b7169203331"
	_, session, _ := w.post(token, "", hello)
	ask := func(trace string) {
		t.Helper()
		call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"runtime_execute","_meta":{"traceparent":"00-` + trace +
			`-b7ad6b7169203331-00"},"arguments":{"repoId":"app","runtime":"shell","code":"getent hosts denied.example.net; echo ran","outputMode":"summary"}}}`
		if code, _, a := w.post(token, session, call); code != http.StatusOK || !strings.Contains(string(a.Result.Structured), `ran\n`) {
			t.Fatalf("%d %+v", code, a)
		}
	}
	ask(other)
	ask(trace)
	find := func(log func() string, message, key string) map[string]any {
		t.Helper()
		var found map[string]any
		sandboxtest.Eventually(t, sandboxtest.Slow(20*time.Second), message, func() bool {
			for line := range strings.Lines(log()) {
				var m map[string]any
				if json.Unmarshal([]byte(line), &m) == nil && m["msg"] == message && m[key] == trace {
					found = m
				}
			}
			return found != nil
		})
		return found
	}
	job := find(w.Err.String, "tool call", "trace_id")["job"] // a front-end may write it after the reply
	if line := find(d.Log, "job ended", "request"); line["job"] != job {
		t.Errorf("the supervisor logs job %v, the front-end %v", line["job"], job)
	}
	sandboxtest.Eventually(t, 20*time.Second, "corral-egress logs the denial", func() bool {
		for line := range strings.Lines(d.Log()) {
			var m struct{ Msg, Line string }
			if json.Unmarshal([]byte(line), &m) == nil && m.Msg == "corral-egress" && strings.Contains(m.Line, " request="+trace+" ") {
				return strings.Contains(m.Line, fmt.Sprintf(" msg=denied name=%s ", job)) && strings.Contains(m.Line, " host=denied.example.net ")
			}
		}
		return false
	})
	if text := auditText(t, d); strings.Count(text, trace) != 1 {
		t.Errorf("the audit log has the trace %d times", strings.Count(text, trace))
	}
	for _, args := range [][]string{{"network", "log"}, {"audit", "export", "--request", trace}} {
		out, err := exec.Command(sandboxtest.Bin(t, "corral-front"), append(args, "--state", d.State)...).CombinedOutput()
		if err != nil || strings.Count(string(out), "claimed.request="+trace) != 1 || strings.Count(string(out), fmt.Sprint(job)) == 0 {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
		if strings.Contains(string(out), other) != (args[0] == "network") {
			t.Errorf("%s is not about the requests that were asked for\n%s", args, out)
		}
	}
}

// auditText returns a supervisor's audit log.
func auditText(t *testing.T, d *sandboxtest.Supervisor) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(d.State, "audit", "*.jsonl"))
	var all strings.Builder
	for _, file := range files {
		text, failed := os.ReadFile(file)
		if err == nil {
			err = failed
		}
		all.Write(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
