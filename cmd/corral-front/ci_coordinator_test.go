package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A coordinator plays a GitLab server: it serves one repository, hands out jobs, and takes their logs, states and artifacts.
type coordinator struct {
	url  string
	repo string // bare, served over HTTP

	mu        sync.Mutex
	next      int64                 // guarded by mu: id of the next job
	queue     []map[string]any      // guarded by mu: descriptions of jobs that no runner has
	logs      map[int64]string      // guarded by mu
	states    map[int64]string      // guarded by mu: success, failed
	reasons   map[int64]string      // guarded by mu: of failures
	codes     map[int64]json.Number // guarded by mu: exit codes
	artifacts map[int64]string      // guarded by mu
	strange   []string              // guarded by mu: requests that it does not know
	cancels   int64                 // guarded by mu: id of the job that is cancelled once it has written "begun"
	missing   int                   // guarded by mu: jobs that have yet to fetch the repository before any of them gets it
	met       chan struct{}         // guarded by mu: closed when none is missing
}

// newCoordinator starts one on an address of this machine that is not a loopback address: programs do not use a proxy for
// those.
func newCoordinator(t *testing.T) *coordinator {
	t.Helper()
	address := ""
	list, err := net.InterfaceAddrs()
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			address = n.IP.String()
		}
	}
	if address == "" {
		t.Skipf("this machine has no address besides loopback: %v, %v", list, err)
	}
	c := &coordinator{
		repo: bareRepo(t), next: 1, logs: map[int64]string{}, states: map[int64]string{},
		reasons: map[int64]string{}, codes: map[int64]json.Number{}, artifacts: map[int64]string{},
	}
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	repo := http.StripPrefix("/repo.git/", http.FileServer(http.Dir(c.repo)))
	mux.Handle("/repo.git/", repo)
	mux.HandleFunc("/repo.git/info/refs", func(w http.ResponseWriter, r *http.Request) {
		c.meet(r.Context())
		repo.ServeHTTP(w, r)
	})
	mux.HandleFunc("POST /api/v4/jobs/request", c.request)
	mux.HandleFunc("PUT /api/v4/jobs/{id}", c.update)
	mux.HandleFunc("PATCH /api/v4/jobs/{id}/trace", c.trace)
	mux.HandleFunc("POST /api/v4/jobs/{id}/artifacts", c.upload)
	mux.HandleFunc("GET /api/v4/jobs/{id}/artifacts", c.download)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.strange = append(c.strange, r.Method+" "+r.URL.Path)
		http.NotFound(w, r)
	})
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: mux}} //nolint:gosec // a test's own client
	s.Start()
	t.Cleanup(s.Close)
	c.url = s.URL
	return c
}

// bareRepo makes a bare repository with one commit, for git's protocol over plain files.
func bareRepo(t *testing.T) string {
	t.Helper()
	work, repo := t.TempDir(), filepath.Join(t.TempDir(), "repo.git")
	if err := os.WriteFile(filepath.Join(work, "README"), []byte("a repository of the test\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{
		{"init", "-q", "-b", "main", work},
		{"-C", work, "add", "README"},
		{"-C", work, "-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "-m", "first"},
		{"clone", "-q", "--bare", work, repo},
		{"-C", repo, "update-server-info"},
	} {
		cmd := exec.Command("git", line...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "HOME="+work)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v, %s", line, err, out)
		}
	}
	return repo
}

// steps describes a job's script.
func steps(script ...string) []map[string]any {
	return []map[string]any{{"name": "script", "script": script, "timeout": 600, "when": "on_success", "allow_failure": false}}
}

// commitOf returns the commit of a repository's branch main.
func commitOf(t *testing.T, repo string) string {
	t.Helper()
	out, err := exec.Command("git", "-c", "safe.directory=*", "-C", repo, "rev-parse", "main").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// response returns the description of a job, as a GitLab server sends it, with some keys replaced.
func (c *coordinator) response(t *testing.T, replace map[string]any) map[string]any {
	t.Helper()
	c.mu.Lock()
	id := c.next
	c.next++
	c.mu.Unlock()
	sha := commitOf(t, c.repo)
	r := map[string]any{
		"id": id, "token": fmt.Sprintf("token-%d", id), "allow_git_fetch": true,
		"job_info": map[string]any{"id": id, "name": "test", "stage": "test", "project_id": 4, "project_name": "app"},
		"git_info": map[string]any{
			"repo_url": c.url + "/repo.git", "ref": "main", "sha": sha, "before_sha": sha, "ref_type": "branch",
			"refspecs": []string{"+refs/heads/*:refs/remotes/origin/*"}, "depth": 0,
		},
		"runner_info": map[string]any{"timeout": 600},
		"variables": []map[string]any{
			{"key": "CI_PROJECT_PATH", "value": "group/app", "public": true},
			{"key": "CI_PROJECT_ID", "value": "4", "public": true},
			{"key": "CI_PROJECT_DIR", "value": "", "public": true},
			{"key": "CI_JOB_ID", "value": fmt.Sprint(id), "public": true},
			{"key": "SECRET", "value": "hunter2-masked", "public": false, "masked": true},
		},
		"steps":    steps("true"),
		"features": map[string]any{"trace_sections": false},
	}
	maps.Copy(r, replace)
	return r
}

// cancel has the server cancel a job, as soon as it has written "begun".
func (c *coordinator) cancel(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancels = id
}

// gather has the next n jobs wait for each other as they fetch the repository. So they all succeed only if n jobs run in parallel.
func (c *coordinator) gather(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missing, c.met = n, make(chan struct{})
}

// meet returns when no job is missing, or when the job gives up.
func (c *coordinator) meet(ctx context.Context) {
	c.mu.Lock()
	met := c.met
	if c.missing > 0 {
		if c.missing--; c.missing == 0 {
			close(met)
		}
	}
	c.mu.Unlock()
	if met == nil {
		return
	}
	select {
	case <-met:
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		c.missing++
	}
}

func (c *coordinator) artifact(id int64) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.artifacts[id]
}

func (c *coordinator) request(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	next := c.queue[0]
	c.queue = c.queue[1:]
	w.Header().Set("Content-Type", "application/json") // the runner insists
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(next)
}

func pathID(r *http.Request) (id int64) {
	_, _ = fmt.Sscan(r.PathValue("id"), &id)
	return id
}

func (c *coordinator) update(_ http.ResponseWriter, r *http.Request) {
	var m struct {
		State    string      `json:"state"`
		Reason   string      `json:"failure_reason"`
		ExitCode json.Number `json:"exit_code"`
	}
	_ = json.NewDecoder(r.Body).Decode(&m)
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.State == "success" || m.State == "failed" {
		id := pathID(r)
		c.states[id], c.reasons[id], c.codes[id] = m.State, m.Reason, m.ExitCode
	}
}

func (c *coordinator) trace(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	id := pathID(r)
	c.logs[id] += string(b)
	w.Header().Set("Job-Status", "running")
	if id == c.cancels && strings.Contains(c.logs[id], "begun\n") {
		w.Header().Set("Job-Status", "canceled")
	}
	w.Header().Set("Range", fmt.Sprintf("0-%d", len(c.logs[id])))
	w.WriteHeader(http.StatusAccepted)
}

func (c *coordinator) upload(w http.ResponseWriter, r *http.Request) {
	f, _, err := r.FormFile("file")
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer f.Close()
	b, _ := io.ReadAll(f)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.artifacts[pathID(r)] = string(b)
	w.WriteHeader(http.StatusCreated)
}

func (c *coordinator) download(w http.ResponseWriter, r *http.Request) {
	content := c.artifact(pathID(r))
	if content == "" {
		http.NotFound(w, r)
		return
	}
	_, _ = io.WriteString(w, content)
}
