package main

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A buildkite plays Buildkite's API for agents: it serves one repository, hands out jobs, and takes their logs, exit statuses and
// artifacts.
type buildkite struct {
	url, commit string

	mu      sync.Mutex
	agents  map[string]string        // guarded by mu: names of those that registered, by access token
	queue   []string                 // guarded by mu: ids of jobs that no agent has
	jobs    map[string]*buildkiteJob // guarded by mu
	strange []string                 // guarded by mu: requests that it does not know
}

// A buildkiteJob is one job, as the server knows it.
type buildkiteJob struct {
	env       map[string]string
	chunks    map[string]string // of the log, by sequence number
	status    string            // exit status, and why the agent ended the job, if it did; "" until it has ended
	artifacts map[string]string
	cancel    bool // once it has written "begun"
}

// log returns what has arrived of the job's log.
func (j *buildkiteJob) log() string {
	var all strings.Builder
	for n := 1; j.chunks[fmt.Sprint(n)] != ""; n++ {
		all.WriteString(j.chunks[fmt.Sprint(n)])
	}
	return all.String()
}

func newBuildkite(t *testing.T) *buildkite {
	t.Helper()
	repo := bareRepo(t)
	b := &buildkite{commit: commitOf(t, repo), agents: map[string]string{}, jobs: map[string]*buildkiteJob{}}
	mux := http.NewServeMux()
	mux.Handle("/repo.git/", http.StripPrefix("/repo.git/", http.FileServer(http.Dir(repo))))
	handle := func(pattern string, f func(id string, r *http.Request) (reply any)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			b.mu.Lock()
			defer b.mu.Unlock()
			_ = json.NewEncoder(w).Encode(f(r.PathValue("id"), r))
		})
	}
	done := func(string, *http.Request) any { return struct{}{} }
	for _, pattern := range []string{
		"POST /v3/connect", "POST /v3/disconnect", "POST /v3/heartbeat", "PUT /v3/jobs/{id}/start", "POST /v3/jobs/{id}/header_times",
		"PUT /v3/jobs/{id}/artifacts",
	} {
		handle(pattern, done)
	}
	// The commit, which agents tell the server if it does not know it.
	handle("POST /v3/jobs/{id}/data/exists", func(string, *http.Request) any { return map[string]bool{"exists": true} })
	handle("POST /v3/register", b.register)
	handle("GET /v3/ping", b.ping)
	handle("PUT /v3/jobs/{id}/accept", b.accept)
	handle("GET /v3/jobs/{id}", b.state)
	handle("POST /v3/jobs/{id}/chunks", b.chunk)
	handle("PUT /v3/jobs/{id}/finish", b.finish)
	handle("POST /v3/jobs/{id}/artifacts", b.announce)
	handle("POST /uploads/{id}", b.upload)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.strange = append(b.strange, r.Method+" "+r.URL.Path)
		http.NotFound(w, r)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	b.url = s.URL
	return b
}

// add queues a job and returns its id.
func (b *buildkite) add(command string, env map[string]string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := fmt.Sprintf("01900000-0000-7000-8000-%012d", len(b.jobs)+1)
	all := map[string]string{
		"BUILDKITE": "true", "CI": "true", "BUILDKITE_COMMAND": command, "BUILDKITE_REPO": b.url + "/repo.git", "BUILDKITE_COMMIT": b.commit,
		"BUILDKITE_BRANCH": "main", "BUILDKITE_ORGANIZATION_SLUG": "acme", "BUILDKITE_PIPELINE_SLUG": "app", "BUILDKITE_JOB_ID": id,
		"BUILDKITE_PIPELINE_PROVIDER": "git", "BUILDKITE_BUILD_ID": id, "BUILDKITE_BUILD_NUMBER": "1", "BUILDKITE_BUILD_URL": b.url + "/1",
		"DEPLOY_TOKEN": "hunter2-masked",
	}
	maps.Copy(all, env)
	b.jobs[id] = &buildkiteJob{env: all, chunks: map[string]string{}, artifacts: map[string]string{}}
	b.queue = append(b.queue, id)
	return id
}

// ended returns how the jobs ended, once all have.
func (b *buildkite) ended(ids ...string) (list []buildkiteJob, all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		list = append(list, *b.jobs[id])
	}
	return list, !slices.ContainsFunc(list, func(j buildkiteJob) bool { return j.status == "" })
}

func (b *buildkite) register(_ string, r *http.Request) any {
	var m struct {
		Name string `json:"name"`
	}
	_ = json.NewDecoder(r.Body).Decode(&m)
	token := fmt.Sprint("access-token-", len(b.agents))
	b.agents[token] = m.Name
	return map[string]any{
		"id": "agent-" + m.Name, "name": m.Name, "access_token": token,
		"endpoint": b.url + "/v3", "ping_interval": 1, "job_status_interval": 1, "heartbeat_interval": 60,
	}
}

func (b *buildkite) ping(string, *http.Request) any {
	if len(b.queue) == 0 {
		return map[string]any{}
	}
	id := b.queue[0]
	b.queue = b.queue[1:]
	return map[string]any{"job": b.describe(id)}
}

// accept gives a job to the agent that asks for it.
func (b *buildkite) accept(id string, r *http.Request) any {
	b.jobs[id].env["BUILDKITE_AGENT_NAME"] = b.agents[strings.TrimPrefix(r.Header.Get("Authorization"), "Token ")]
	return b.describe(id)
}

func (b *buildkite) describe(id string) map[string]any {
	j := b.jobs[id]
	return map[string]any{
		"id": id, "state": "accepted", "env": j.env, "chunks_max_size_bytes": 100 << 10, "chunks_interval_seconds": 1,
		"log_max_size_bytes": 10 << 20, "token": "job-token", "step": map[string]any{"command": j.env["BUILDKITE_COMMAND"]},
	}
}

func (b *buildkite) state(id string, _ *http.Request) any {
	if j := b.jobs[id]; j.cancel && strings.Contains(j.log(), "begun") {
		return map[string]string{"state": "canceling"}
	}
	return map[string]string{"state": "running"}
}

func (b *buildkite) chunk(id string, r *http.Request) any {
	z, err := gzip.NewReader(r.Body)
	if err == nil {
		var text []byte
		text, err = io.ReadAll(z)
		b.jobs[id].chunks[r.URL.Query().Get("sequence")] = string(text)
	}
	if err != nil {
		b.strange = append(b.strange, "a chunk of the log: "+err.Error())
	}
	return struct{}{}
}

func (b *buildkite) finish(id string, r *http.Request) any {
	var m struct {
		ExitStatus   string `json:"exit_status"`
		SignalReason string `json:"signal_reason"`
	}
	_ = json.NewDecoder(r.Body).Decode(&m)
	b.jobs[id].status = strings.TrimSpace(m.ExitStatus + " " + m.SignalReason)
	return struct{}{}
}

// announce tells the agent where artifacts go: one request each, to upload.
func (b *buildkite) announce(id string, r *http.Request) any {
	var m struct {
		ID        string           `json:"id"`
		Artifacts []map[string]any `json:"artifacts"`
	}
	_ = json.NewDecoder(r.Body).Decode(&m)
	var ids []string
	for i := range m.Artifacts {
		ids = append(ids, fmt.Sprint(m.ID, "-", i))
	}
	return map[string]any{"id": m.ID, "artifact_ids": ids, "upload_instructions": map[string]any{
		"data":   map[string]string{"path": "${artifact:path}"},
		"action": map[string]string{"url": b.url, "method": "POST", "path": "/uploads/" + id, "file_input": "file"},
	}}
}

func (b *buildkite) upload(id string, r *http.Request) any {
	f, _, err := r.FormFile("file")
	if err != nil {
		b.strange = append(b.strange, "an artifact: "+err.Error())
		return struct{}{}
	}
	defer f.Close()
	content, _ := io.ReadAll(f)
	b.jobs[id].artifacts[r.FormValue("path")] = string(content)
	return struct{}{}
}
