package main

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"corral/job"
	"corral/policy/network"
)

// TestAgents: each row of the table has what an agent needs, and nothing of another's.
func TestAgents(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range agents {
		preset, known := network.PresetNamed(a.api)
		if seen[a.name] || a.name == "" || a.program == "" || a.npm == "" || !known || preset.Key == nil || len(a.state) == 0 {
			t.Errorf("%+v", a)
		}
		seen[a.name] = true
		for _, path := range append(slices.Clone(a.state), a.places...) {
			if filepath.IsAbs(path) || filepath.Clean(path) != path || strings.HasPrefix(path, "..") || path == "." {
				t.Errorf("%s: %q must be below the home directory", a.name, path)
			}
		}
		if _, err := network.RulesFor(strings.Join(append([]string{a.api}, a.login...), " ")); err != nil {
			t.Errorf("%s: %v", a.name, err)
		}
		if _, err := environment(a.env, nil, false); err != nil {
			t.Errorf("%s: %v", a.name, err)
		}
	}
}

// TestApproval: Claude Code knows a key by its last 20 characters, which are the same for each placeholder.
func TestApproval(t *testing.T) {
	const behind = "--placeholder-corral"
	a, _ := agentNamed("claude")
	if len(behind) != 20 || a.key != "$CORRAL_SECRET"+behind || !strings.Contains(a.begin, `["`+behind+`"]`) {
		t.Errorf("%q %q", a.key, a.begin)
	}
}

// TestElsewhere: a program that is missing in a jail, and that all jails show where PATH has it, gets no hint.
func TestElsewhere(t *testing.T) {
	dirs := map[string]string{"repo": t.TempDir(), "toolchain": t.TempDir(), "other": t.TempDir()}
	for name, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "in-"+name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", strings.Join(slices.Collect(maps.Values(dirs)), ":")+":/usr/bin:/bin")
	for program, want := range map[string]string{
		"in-repo": "", "in-toolchain": "", "in-other": "PATH has it in " + dirs["other"] + ", which jails show with --toolchain " + dirs["other"],
		"sh": "", "/bin/sh": "", "in-nothing": "", filepath.Join(dirs["repo"], "in-repo"): "",
	} {
		o := &runOptions{toolchains: []string{dirs["toolchain"]}}
		o.spec.Repo, o.spec.Args = dirs["repo"], []string{program}
		if got := o.elsewhere(); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", program, got, want)
		}
	}
}

// TestInstallation: what is shown of an installation has nothing beside it.
func TestInstallation(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for _, name := range []string{"b-linux-x64", "other"} {
		if err := os.MkdirAll(filepath.Join(home, "p/node_modules/@a", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"/usr/bin/claude": "", "/usr/local/lib/node_modules/@anthropic-ai/claude-code/cli.js": "",
		"/opt/claude/2.1/claude":                                                    "/opt/claude/2.1",
		home + "/.local/share/claude/versions/2.1":                                  home + "/.local/share/claude/versions",
		"/x/node_modules/@anthropic-ai/code/bin/c":                                  "/x/node_modules/@anthropic-ai/code",
		"/x/node_modules/opencode/bin/opencode":                                     "/x/node_modules/opencode",
		"/h/.nvm/versions/node/v22.1.0/lib/node_modules/@openai/codex/bin/codex.js": "/h/.nvm/versions/node/v22.1.0",
		"/y/node_modules/a/node_modules/@b/c/d":                                     "/y/node_modules/a",
		home + "/p/node_modules/@a/b/c":                                             home + "/p/node_modules/@a/b " + home + "/p/node_modules/@a/b-linux-x64",
		home + "/.local/bin/claude":                                                 "error",
		home + "/claude":                                                            "error",
		filepath.Dir(home) + "/claude":                                              "error",
		"/shown/bin/claude":                                                         "",
	} {
		a := &agentRun{runOptions: runOptions{toolchains: []string{"/shown"}}}
		got, err := a.installation(path)
		if (err != nil) != (want == "error") || err == nil && strings.Join(got, " ") != want {
			t.Errorf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
}

// TestAgentWords: options come before the agent's name, and all that follows is the agent's.
func TestAgentWords(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	program := filepath.Join(home, "agent", "claude")
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "/nowhere")
	for _, tt := range []struct {
		args      string
		words     string // the end of the job's program and arguments
		workspace job.Workspace
		network   string
		err       string
	}{
		{args: "--supervisor /s --program PROGRAM claude --direct -p x", words: "PROGRAM --direct -p x", workspace: job.Overlay, network: "anthropic"},
		{args: "--supervisor /s --network npm --direct --program PROGRAM claude", words: "PROGRAM", workspace: job.Direct, network: "anthropic npm"},
		{args: "--supervisor /s --login --program PROGRAM claude", words: "PROGRAM", workspace: job.Overlay, network: "anthropic claude.ai console.anthropic.com platform.claude.com"},
		{args: "--supervisor /s -- claude -p x", words: "claude -p x", workspace: job.Overlay},
		{args: "--supervisor /s --workspace readonly -- true", words: "true", workspace: job.ReadOnly},
		{args: "", err: "no agent given: must be claude, codex, gemini, opencode, copilot"},
		{args: "claud", err: "did you mean corral agent claude?"},
		{args: "--session x -- true", err: "are for corral run"},
		{args: "--direct --workspace overlay -- true", err: "cannot be combined"},
		{args: "--login --key-file k --program PROGRAM claude", err: "cannot be combined"},
		{args: "--login --program PROGRAM gemini", err: "--login is not for gemini"},
		{args: "--key-file k -- true", err: "for an agent by name"},
		{args: "--program /nowhere/claude claude", err: `--program "/nowhere/claude": must be a file that can be executed`},
		{args: "--program /etc/passwd claude", err: `--program "/etc/passwd": must be a file that can be executed`},
		{args: "gemini", err: "gemini is not installed: it is neither in PATH (/nowhere), nor below HOME in .local/bin, .npm-global/bin, " +
			".nvm/versions/node/*/bin\nhint: npm install -g @google/gemini-cli, or name it: --program PATH"},
		{args: "--supervisor /s --key-file k --program PROGRAM claude", err: "--key-file is for the supervisor that root starts"},
	} {
		a, err := parseAgent(strings.Fields(strings.ReplaceAll(tt.args, "PROGRAM", program)))
		if tt.err != "" {
			if want := strings.ReplaceAll(tt.err, "HOME", home); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", tt.args, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.args, err)
			continue
		}
		words := strings.Join(a.spec.Args, " ")
		if want := strings.ReplaceAll(tt.words, "PROGRAM", program); !strings.HasSuffix(words, want) || a.spec.Workspace != tt.workspace || a.spec.Network != tt.network {
			t.Errorf("%s: %q, %v, %q", tt.args, words, a.spec.Workspace, a.spec.Network)
		}
	}
}

// TestServed: in a jail of a running supervisor, the agent starts only if the jail shows it and has a key, and the words of the error
// are what to tell the operator.
func TestServed(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "it's", "claude")
	if err := errors.Join(os.MkdirAll(filepath.Dir(program), 0o755), os.WriteFile(program, []byte("#!/bin/sh\necho \"$@\"\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	a, err := parseAgent([]string{"--supervisor", "/s", "--program", program, "claude", "-p", "x y"})
	if err != nil || len(a.toolchains) != 0 {
		t.Fatalf("%v %q", err, a.toolchains)
	}
	for _, tt := range []struct {
		env  string
		gone bool
		want string
	}{
		{env: "CORRAL_SECRET=corral-X", want: "-p x y\n"},
		{env: "ANTHROPIC_API_KEY=own", want: "-p x y\n"},
		{env: "A=b", want: "corral: the running supervisor has no key of anthropic for this repository\n" +
			"hint: the operator can give jobs one: secrets of the configuration\n"},
		{env: "CORRAL_SECRET=corral-X", gone: true, want: "corral: jails of the running supervisor do not show " + program + "\n" +
			"hint: the operator can show them " + filepath.Dir(program) + ": toolchains of the configuration\n"},
	} {
		if tt.gone {
			if err := os.Remove(program); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(a.spec.Args[0], a.spec.Args[1:]...)
		cmd.Env = []string{"HOME=" + dir, "PATH=/usr/bin:/bin", tt.env}
		if out, _ := cmd.CombinedOutput(); string(out) != tt.want {
			t.Errorf("%s: %q, want %q", tt.env, out, tt.want)
		}
	}
}

// TestReadKey: a key is in the variable, else in the file, and no file without one is taken for it.
func TestReadKey(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("GEMINI_API_KEY", "")
	a := &agentRun{}
	a.agent, _ = agentNamed("gemini")
	if _, err := a.readKey(); err == nil || !strings.Contains(err.Error(), "neither the variable GEMINI_API_KEY nor "+home) || strings.Contains(err.Error(), "log in") {
		t.Errorf("no key: %v", err)
	}
	a.keyFile = filepath.Join(home, "key")
	for content, want := range map[string]string{" \n": "is empty", "abc\n": "", strings.Repeat("x", maxKey+1): "too large"} {
		if err := os.WriteFile(a.keyFile, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		key, err := a.readKey()
		if want == "" && (err != nil || key != "abc") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.10q: %q, %v", content, key, err)
		}
	}
	t.Setenv("GEMINI_API_KEY", "from-variable")
	a.keyFile = ""
	if key, err := a.readKey(); key != "from-variable" || err != nil {
		t.Errorf("%q, %v", key, err)
	}
}
