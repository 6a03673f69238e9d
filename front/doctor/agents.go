package doctor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// An integration says how an agent that runs outside of a jail has its commands run in jails, if it can.
type integration struct {
	name    string
	places  []string // of its program below the home directory, after PATH
	inside  string   // what is in jails with the lines in file
	outside string   // what is not
	// file is that of its settings, below the home directory; empty: it has none for this. add are the lines that it needs, with %s for the
	// path of corral-shell. has reports whether a file has them, and with puts them into one.
	file string
	add  string
	has  func(text []byte) bool
	with func(text []byte, shell string) ([]byte, error)
}

var npmPlaces = []string{".local/bin", ".npm-global/bin", ".nvm/versions/node/*/bin"}

var integrations = []integration{
	{
		name: "claude", places: append([]string{".claude/local"}, npmPlaces...),
		inside:  "commands of its tool Bash, hooks, and MCP servers that it starts",
		outside: "itself, its tools Read, Write and Edit, git that it starts to know the project's state, and MCP servers that it reaches by a URL",
		file:    ".claude/settings.json", add: `{"env": {"CLAUDE_CODE_SHELL_PREFIX": "%s"}}`,
		has: func(text []byte) bool {
			var s struct{ Env map[string]string }
			return json.Unmarshal(text, &s) == nil && filepath.Base(s.Env["CLAUDE_CODE_SHELL_PREFIX"]) == "corral-shell"
		},
		with: func(text []byte, shell string) ([]byte, error) {
			return insert(text, "env", "CLAUDE_CODE_SHELL_PREFIX", shell)
		},
	},
	{
		name: "codex", places: npmPlaces,
		inside:  "commands, patches, files that it reads, and MCP servers with environment_id = \"corral\"",
		outside: "itself, git rev-parse and git remote that it starts in the workspace, its notify program, and MCP servers without environment_id",
		file:    ".codex/environments.toml",
		add:     codexLines,
		has: func(text []byte) bool {
			s := string(text)
			return hasLine(s, "default", `"corral"`) && hasLine(s, "include_local", "false") && hasLine(s, "args", `["codex-environment"`)
		},
		with: func(text []byte, _ string) ([]byte, error) {
			if len(bytes.TrimSpace(text)) > 0 {
				return nil, errors.New("it has other environments")
			}
			return []byte(codexLines + "\n"), nil
		},
	},
	{
		name: "opencode", places: append([]string{".opencode/bin"}, npmPlaces...),
		inside: "commands of its tool bash", outside: "itself, its tools that read and write files, plugins, and MCP servers",
		file: ".config/opencode/opencode.json", add: `{"shell": "%s"}`,
		has: func(text []byte) bool {
			var s struct{ Shell string }
			return json.Unmarshal(text, &s) == nil && filepath.Base(s.Shell) == "corral-shell"
		},
		with: func(text []byte, shell string) ([]byte, error) { return insert(text, "", "shell", shell) },
	},
	{name: "gemini", places: npmPlaces, outside: "all of it"},
	{name: "copilot", places: npmPlaces, outside: "all of it"},
}

const codexLines = `default = "corral"
include_local = false

[[environments]]
id = "corral"
program = "corral"
args = ["codex-environment"]`

// An Agent is one that is installed.
type Agent struct {
	Name    string `json:"name"`
	Program string `json:"program"`
	Inside  string `json:"inside,omitempty"`   // what is in jails once its settings have Lines
	Outside string `json:"outside"`            // what is not
	File    string `json:"settings,omitempty"` // in which Lines belong
	Lines   string `json:"lines,omitempty"`
	Set     bool   `json:"set"`             // they are there
	Added   bool   `json:"added,omitempty"` // and were not before
	Problem string `json:"problem,omitempty"`
}

// ExamineAgents finds the agents of the user with a home directory, who this process runs as. With write, it adds the lines that are
// missing where that changes nothing else. shell is the path of corral-shell, path is PATH.
func ExamineAgents(home, path, shell string, write bool) (list []Agent) {
	for _, i := range integrations {
		program := i.program(home, path)
		if program == "" {
			continue
		}
		a := Agent{Name: i.name, Program: program, Inside: i.inside, Outside: i.outside, Lines: strings.ReplaceAll(i.add, "%s", shell)}
		if i.name == "codex" {
			a.Outside += hostServers(home)
		}
		if i.file != "" {
			a.File = filepath.Join(home, i.file)
			var err error
			if a.Set, a.Added, err = i.examine(a.File, shell, write); err != nil {
				a.Problem = err.Error()
			}
		}
		list = append(list, a)
	}
	return list
}

// program returns the path of the agent's program, "" if there is none.
func (i integration) program(home, path string) string {
	patterns := filepath.SplitList(path)
	for _, place := range i.places {
		patterns = append(patterns, filepath.Join(home, place))
	}
	for _, pattern := range patterns {
		found, _ := filepath.Glob(filepath.Join(pattern, i.name))
		for _, f := range found {
			if info, err := os.Stat(f); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && filepath.IsAbs(f) {
				return f
			}
		}
	}
	return ""
}

// examine reports whether the file has the lines, and with write adds them if it lacks them.
func (i integration) examine(file, shell string, write bool) (set, added bool, err error) {
	text, err := readSettings(file)
	if err != nil || i.has(text) || !write {
		return err == nil && i.has(text), false, err
	}
	changed, err := i.with(text, shell)
	if err == nil && !i.has(changed) {
		err = errors.New("what it has is not understood")
	}
	if err != nil {
		return false, false, fmt.Errorf("%s is not changed: %w\nhint: add the lines by hand", file, err)
	}
	err = replace(file, changed)
	return err == nil, err == nil, err
}

// hasLine reports whether TOML has a line that gives a key a value which begins so.
func hasLine(text, key, value string) bool {
	for line := range strings.Lines(text) {
		k, v, _ := strings.Cut(line, "=")
		if strings.TrimSpace(k) == key && strings.HasPrefix(strings.TrimSpace(v), value) {
			return true
		}
	}
	return false
}

// hostServers names the MCP servers that Codex starts outside of jails.
func hostServers(home string) string {
	text, _ := readSettings(filepath.Join(home, ".codex/config.toml"))
	var names []string
	for section := range strings.SplitSeq("\n"+string(text), "\n[") {
		name, body, _ := strings.Cut(section, "]")
		name, ok := strings.CutPrefix(name, "mcp_servers.")
		if ok && !strings.Contains(name, ".") && !hasLine(body, "environment_id", `"corral"`) {
			names = append(names, fmt.Sprintf("%q", strings.Trim(name, `"`)))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ", which are " + strings.Join(names, ", ")
}

// WriteAgents writes the report as text.
func WriteAgents(w io.Writer, list []Agent) error {
	var b strings.Builder
	if len(list) == 0 {
		b.WriteString("no agent is installed that corral knows\n")
	}
	for _, a := range list {
		fmt.Fprintf(&b, "%s: %q\n  all of it in a jail: corral agent %s\n", a.Name, a.Program, a.Name)
		switch {
		case a.Added:
			fmt.Fprintf(&b, "  commands alone, by the lines that were added to %q:\n", a.File)
		case a.Set:
			fmt.Fprintf(&b, "  commands alone, by %q:\n", a.File)
		case a.File != "":
			fmt.Fprintf(&b, "  commands alone, with these lines in %q:\n\n\t%s\n\n", a.File, strings.ReplaceAll(a.Lines, "\n", "\n\t"))
		}
		if a.File != "" {
			fmt.Fprintf(&b, "    in jails: %s\n    outside: %s\n", a.Inside, a.Outside)
		}
		if a.Problem != "" {
			fmt.Fprintf(&b, "  %s\n", strings.ReplaceAll(a.Problem, "\n", "\n  "))
		}
		if !a.Set {
			b.WriteString("  started without corral: all of it is outside now\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
