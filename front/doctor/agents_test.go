package doctor

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAgentSettings: the lines that an agent's settings need are found, and put in where nothing else changes.
func TestAgentSettings(t *testing.T) {
	const shell = "/opt/bin/corral-shell"
	for _, tt := range []struct {
		name, agent string
		text        string // of the file; "-": there is none
		want        string // of the file after ExamineAgents wrote it; empty: it stays, and is not set
		problem     string
	}{
		{"no settings", "claude", "-", `{"env": {"CLAUDE_CODE_SHELL_PREFIX": "/opt/bin/corral-shell"}}` + "\n", ""},
		{"other settings", "claude", "{\n  \"model\": \"x\"\n}\n", `{"env": {"CLAUDE_CODE_SHELL_PREFIX": "/opt/bin/corral-shell"}, ` + "\n  \"model\": \"x\"\n}\n", ""},
		{"other variables", "claude", `{"a": {"env": 1}, "env" : { "A": "b" }}`, `{"a": {"env": 1}, "env" : {"CLAUDE_CODE_SHELL_PREFIX": "/opt/bin/corral-shell",  "A": "b" }}`, ""},
		{"no variables", "claude", `{"env": {}}`, `{"env": {"CLAUDE_CODE_SHELL_PREFIX": "/opt/bin/corral-shell"}}`, ""},
		{"it is set", "claude", `{"env": {"CLAUDE_CODE_SHELL_PREFIX": "/usr/bin/corral-shell"}}`, `{"env": {"CLAUDE_CODE_SHELL_PREFIX": "/usr/bin/corral-shell"}}`, ""},
		{"another prefix", "claude", `{"env": {"CLAUDE_CODE_SHELL_PREFIX": "nice"}}`, "", "it has another \"env\""},
		{"variables that are none", "claude", `{"env": [1]}`, "", "it has another"},
		{"two of them", "claude", `{"env": {"A": "b"}, "env": {"CLAUDE_CODE_SHELL_PREFIX": "nice"}}`, "", "it has another"},
		{"no object", "claude", `[]`, "", "must be an object of JSON"},
		{"no JSON", "claude", `{"env": }`, "", "must be an object of JSON"},
		{"no environments", "codex", "-", codexLines + "\n", ""},
		{"an empty file", "codex", " \n", codexLines + "\n", ""},
		{"they are set", "codex", "# mine\n" + codexLines, "# mine\n" + codexLines, ""},
		{"a local one, too", "codex", strings.Replace(codexLines, "include_local = false", "include_local = true", 1), "", "it has other environments"},
		{"a comment", "codex", strings.Replace(codexLines, "default", "# default", 1), "", "it has other environments"},
		{"another default", "codex", strings.Replace(codexLines, `"corral"`, `"other"`, 1), "", "it has other environments"},
		{"no settings", "opencode", "-", `{"shell": "/opt/bin/corral-shell"}` + "\n", ""},
		{"another shell", "opencode", `{"shell": "zsh"}`, "", "it has another \"shell\""},
		{"other settings", "opencode", `{"shells": {"shell": "x"}}`, `{"shell": "/opt/bin/corral-shell", "shells": {"shell": "x"}}`, ""},
		{"an object without a name", "opencode", `{"": {}}`, "", "what it has is not understood"},
	} {
		home := t.TempDir()
		program := filepath.Join(home, ".local/bin", tt.agent)
		file := filepath.Join(home, integrationOf(t, tt.agent).file)
		put(t, program, "", 0o755)
		if tt.text != "-" {
			put(t, file, tt.text, 0o640)
		}
		for _, write := range []bool{false, true} {
			list := ExamineAgents(home, "/nowhere", shell, write)
			if len(list) != 1 || list[0].Name != tt.agent || list[0].Program != program || list[0].File != file {
				t.Fatalf("%s, %s: %+v", tt.agent, tt.name, list)
			}
			want, set := tt.text, tt.want == tt.text
			if write && tt.want != "" {
				want, set = tt.want, true
			}
			b, err := os.ReadFile(file)
			if err != nil {
				b = []byte("-")
			}
			if added := want != tt.text; string(b) != want || list[0].Set != set || list[0].Added != added || !write && list[0].Problem != "" || write && !strings.Contains(list[0].Problem, tt.problem) {
				t.Errorf("%s, %s, write %v: %q, want %q; %+v", tt.agent, tt.name, write, b, want, list[0])
			}
		}
		if info, err := os.Stat(file); err == nil && tt.text != "-" && info.Mode() != 0o640 {
			t.Errorf("%s, %s: the mode is %v", tt.agent, tt.name, info.Mode())
		}
		if entries, _ := os.ReadDir(filepath.Dir(file)); len(entries) > 1 {
			t.Errorf("%s, %s: there are %v", tt.agent, tt.name, entries)
		}
	}
}

// TestAgentSettingsElsewhere: a link, and a pipe, in a place of settings stay as they are.
func TestAgentSettingsElsewhere(t *testing.T) {
	home := t.TempDir()
	put(t, filepath.Join(home, ".local/bin/claude"), "", 0o755)
	put(t, filepath.Join(home, "dotfiles"), "{}", 0o600)
	file := filepath.Join(home, ".claude/settings.json")
	for name, plant := range map[string]func() error{
		"a link": func() error { return os.Symlink("../dotfiles", file) },
		"a pipe": func() error { return unix.Mkfifo(file, 0o600) },
	} {
		_ = os.Remove(file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := plant(); err != nil {
			t.Fatal(err)
		}
		list := ExamineAgents(home, "", "/bin/corral-shell", true)
		info, err := os.Lstat(file)
		if b, _ := os.ReadFile(filepath.Join(home, "dotfiles")); err != nil || info.Mode().IsRegular() || string(b) != "{}" || list[0].Set || !strings.Contains(list[0].Problem, "not a regular file") {
			t.Errorf("%s: %v, %v, %q, %+v", name, info, err, b, list)
		}
	}
}

// TestAgents: what is said of each agent.
func TestAgents(t *testing.T) {
	home := t.TempDir()
	var b bytes.Buffer
	if err := WriteAgents(&b, ExamineAgents(home, "", "/s", false)); err != nil || b.String() != "no agent is installed that corral knows\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
	for _, i := range integrations {
		if i.outside == "" || (i.file == "") != (i.has == nil) || (i.file == "") != (i.with == nil) || (i.file == "") != (i.inside == "") {
			t.Errorf("%+v", i)
		}
		put(t, filepath.Join(home, "bin", i.name), "", 0o755)
	}
	put(t, filepath.Join(home, "bin/gemini"), "", 0o644) // no program
	put(t, filepath.Join(home, ".nvm/versions/node/v22.0.0/bin/gemini"), "", 0o755)
	put(t, filepath.Join(home, ".codex/config.toml"), `
[mcp_servers.web]
command = "npx" # environment_id = "corral"
[mcp_servers.web.env]
environment_id = "corral"
[mcp_servers."in the jail"]
environment_id = "corral"
`, 0o600)
	list := ExamineAgents(home, filepath.Join(home, "bin"), "/s/corral-shell", false)
	if err := WriteAgents(&b, list); err != nil || len(list) != len(integrations) {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, want := range []string{
		"claude: \"" + home + "/bin/claude\"\n  all of it in a jail: corral agent claude\n", "git that it starts", "its tools Read, Write and Edit",
		`{"env": {"CLAUDE_CODE_SHELL_PREFIX": "/s/corral-shell"}}`, "\tinclude_local = false\n",
		"MCP servers without environment_id, which are \"web\"\n", "/v22.0.0/bin/gemini\"\n  all of it in a jail: corral agent gemini\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
}

func integrationOf(t *testing.T, name string) integration {
	t.Helper()
	for _, i := range integrations {
		if i.name == name {
			return i
		}
	}
	t.Fatalf("there is no %q", name)
	return integration{}
}

func put(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}
