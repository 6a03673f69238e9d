package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"corral/internal/test/sandboxtest"
)

// A begun is the reply of sandbox_exec about a command that runs on.
type begun struct {
	ExitCode  *int   `json:"exit_code"`
	JobID     string `json:"job_id"`
	Listening []string
	Follow    string
}

// begin starts a command in the background.
func (h *host) begin(line string) *begun {
	h.t.Helper()
	a := h.must("tools/call", object{"name": "sandbox_exec", "arguments": object{"command": line, "background": true}})
	b := &begun{}
	if err := json.Unmarshal([]byte(a.Result.Content[0].Text), b); err != nil || a.Result.IsError || b.ExitCode != nil || b.JobID == "" {
		h.t.Fatalf("%v: %+v", err, a.Result)
	}
	return b
}

// follow returns the text of ctx_job about a job.
func (h *host) follow(arguments object) string {
	h.t.Helper()
	return h.must("tools/call", object{"name": "ctx_job", "arguments": arguments}).Result.Content[0].Text
}

// TestSandboxBackground: PostgreSQL that one call starts is used by the next ones, is followed and ended by ctx_job, and ends with the
// session.
func TestSandboxBackground(t *testing.T) {
	sandboxtest.RequireJails(t, sandboxtest.Postgres)
	sandboxtest.Leaks(t)
	_, _, h := served(t, "")
	server := h.begin(sandboxtest.PostgresServer)
	if !strings.Contains(server.Follow, `ctx_job(id: "`+server.JobID+`"`) {
		t.Errorf("%+v", server)
	}
	sandboxtest.Eventually(t, 2*time.Minute, "it says where it listens", func() bool {
		said := h.follow(object{"id": server.JobID, "action": "status"})
		if !strings.HasPrefix(said, server.JobID+": running") {
			t.Fatalf("%s\n%s", said, h.follow(object{"id": server.JobID, "action": "output", "stream": "stderr"}))
		}
		return strings.Contains(said, "listen at 127.0.0.1:5432")
	})
	psql := `psql -h 127.0.0.1 -U ada -d postgres -qtAc `
	sandboxtest.Eventually(t, time.Minute, "it answers", func() bool { return h.sh(psql+"'select 1'").Stdout == "1\n" })
	h.sh(psql+`"create table notes as select 'kept' as text"`).want(t, 0, "")
	h.sh(psql+"'select text from notes'").want(t, 0, "kept\n")
	if said := h.follow(object{"id": server.JobID, "action": "output", "stream": "stderr"}); !strings.Contains(said, "ready to accept connections") {
		t.Errorf("%s", said)
	}
	h.follow(object{"id": server.JobID, "action": "signal"})
	sandboxtest.Eventually(t, time.Minute, "it ends", func() bool {
		return strings.HasPrefix(h.follow(object{"id": server.JobID, "action": "status"}), server.JobID+": success, exit code 0")
	})
	again := h.begin("exec python3 -m http.server --bind 127.0.0.1 8000")
	sandboxtest.Eventually(t, time.Minute, "another one listens", func() bool {
		return strings.Contains(h.follow(object{"id": again.JobID, "action": "status"}), "127.0.0.1:8000")
	})
	if third := h.begin("exec sleep 4444.1212"); !slices.Equal(third.Listening, []string{"127.0.0.1:8000"}) {
		t.Errorf("%+v", third)
	}
	h.end()
	sandboxtest.Eventually(t, time.Minute, "all end with the session", func() bool { return marked("4444.1212") == 0 })
}
