package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"corral/internal/test/sandboxtest"
)

// A ground is a directory with a configuration, two repositories, a toolchain of fake programs, and a place for rules.
// All of it is readable for the user that the program becomes when root starts it.
type ground struct {
	t         *testing.T
	dir, file string
}

func newGround(t *testing.T, runtime string) ground {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g := ground{t, dir, filepath.Join(dir, "config.yaml")}
	for _, sub := range []string{"..", ".", "app", "site", "tools"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(dir, sub), 0o755), os.Chmod(filepath.Join(dir, sub), 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tools/python3", "tools/bash"} {
		g.write(name, "#!/bin/sh\n")
		if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	g.write("config.yaml", "version: 1\nrepos: [{path: "+dir+"/app, env: {allow: [TOKEN]}}, {path: "+dir+"/site}]\ntoolchains: ["+dir+
		"/tools]\nprincipals:\n- {name: ci, token_sha256: \""+strings.Repeat("ef", 32)+"\"}\n- {name: one, token_sha256: \""+strings.Repeat("ab", 32)+"\", repos: [site]}\n"+
		"- {name: reader, token_sha256: \""+strings.Repeat("cd", 32)+"\", tools: [runtime_query_output]}\n"+
		"- {name: agent, token_sha256: \""+strings.Repeat("12", 32)+"\", tools: [agent]}\n"+
		"runtime: {"+runtime+"}\n")
	t.Setenv("XDG_CONFIG_HOME", dir)
	return g
}

// write makes a file that everybody may read and only its owner may write, whatever the umask.
func (g ground) write(name, text string) string {
	g.t.Helper()
	path := filepath.Join(g.dir, name)
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, 0o644)); err != nil {
		g.t.Fatal(err)
	}
	return path
}

// test runs corral policy test on a request.
func (g ground) test(request string, options ...string) (code int, stdout, stderr string) {
	g.t.Helper()
	args := append([]string{"policy", "test", g.write("request.json", request), "--config", g.file}, options...)
	return front(g.t, args...)
}

// TestPolicyTestJSON checks the fields of --json.
func TestPolicyTestJSON(t *testing.T) {
	g := newGround(t, "max_duration: 1m")
	for request, denied := range map[string]bool{
		`{"repoId":"app","runtime":"shell","args":["-c","true"],"principal":"user:ada"}`:                    false,
		`{"repoId":"app","runtime":"shell","args":["-c","true"],"relativeCwd":"..","principal":"user:ada"}`: true,
	} {
		code, stdout, stderr := g.test(request, "--json")
		var out struct {
			Allowed         bool
			Hash            string
			Steps           []any
			Argv, Env       []string
			Limits          map[string]*int64
			Repo, Workspace string
		}
		if err := json.Unmarshal([]byte(stdout), &out); err != nil || stderr != "" || (code == 1) != denied || out.Allowed == denied {
			t.Fatalf("exit code %d, %v, %s%s", code, err, stdout, stderr)
		}
		if len(out.Hash) != 64 || len(out.Steps) == 0 || len(out.Env) == 0 || (out.Argv == nil) != denied {
			t.Errorf("%+v", out)
		}
		if !denied && (*out.Limits["timeout_ms"] != 60000 || out.Limits["memory_bytes"] == nil || out.Limits["milli_cpus"] != nil ||
			out.Workspace != "direct" || out.Repo != g.dir+"/app") {
			t.Errorf("%+v", out)
		}
	}
}

// TestHowToRules runs the examples of the page: rules, requests and explanations.
func TestHowToRules(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(sandboxtest.ModuleRoot(t), "docs/how-to/write-policy-rules.md"))
	if err != nil {
		t.Fatal(err)
	}
	rules, request, ran := "", "", 0
	for _, block := range regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		switch text := block[2]; block[1] {
		case "python":
			rules = text
		case "json":
			request = text
		case "console":
			ran++
			g := newGround(t, "")
			g.write("config.yaml", strings.Replace(string(read(t, g.file)), "runtime: {}",
				"ceilings: {memory: 64GiB} # so that the page is right on a small machine\nruntime: {rules: "+g.write("rules.star", rules)+"}", 1))
			want, ok := strings.CutPrefix(text, "$ corral policy test request.json\n")
			code, stdout, stderr := g.test(request)
			if !ok || stderr != "" || !matches(stdout, want) || (code == 1) != strings.Contains(want, " deny ") {
				t.Errorf("%s%s: exit code %d\n%s%s\nwant\n%s", rules, request, code, stdout, stderr, want)
			}
		}
	}
	if ran < 6 {
		t.Errorf("%d examples", ran)
	}
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// matches reports whether text is what a page shows, in which … stands for any text.
func matches(text, page string) bool {
	var parts []string
	for _, part := range strings.Split(strings.ReplaceAll(page, "…\n", "…"), "…") {
		parts = append(parts, regexp.QuoteMeta(part))
	}
	return regexp.MustCompile("(?s)^" + strings.Join(parts, ".*") + "$").MatchString(text)
}

// TestPolicyTestTools: a principal that may use the tools for agents has its request decided as one of run, and one that may run no
// code has none.
func TestPolicyTestTools(t *testing.T) {
	g := newGround(t, "max_duration: 1m")
	rules := g.write("rules.star", "def decide(request):\n    if request.tool == \"run\":\n        return deny(\"run is for others\")\n    return allow()\n")
	config, err := os.ReadFile(g.file)
	if err != nil {
		t.Fatal(err)
	}
	g.write("config.yaml", strings.Replace(string(config), "max_duration: 1m", "rules: "+rules, 1))
	request := func(principal string) string {
		return `{"repoId":"app","runtime":"shell","args":["-c","true"],"principal":"` + principal + `"}`
	}
	if code, stdout, stderr := g.test(request("token:agent")); code != 1 || !strings.Contains(stdout, "run is for others") {
		t.Errorf("tools: [agent]: exit code %d, %s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := g.test(request("token:ci")); code != 0 {
		t.Errorf("all tools: exit code %d, %s%s", code, stdout, stderr)
	}
	if code, _, stderr := g.test(request("token:reader")); code != 125 || !strings.Contains(stderr, "may not use a tool that runs code") {
		t.Errorf("no tool that runs code: exit code %d, %s", code, stderr)
	}
}
