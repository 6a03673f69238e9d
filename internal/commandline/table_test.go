package commandline_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"corral/front/commands"
	"corral/internal/commandline"
	"corral/internal/test/sandboxtest"
	"corral/job"
)

// TestValues: the kind of each value is decided, and the fixed words are those that the help text names.
func TestValues(t *testing.T) {
	used := map[string]bool{}
	for _, c := range append(commands.Corral().Commands, *commands.Corrald()) {
		for _, o := range c.Options {
			list := c.Words(&o)
			_, known := commandline.Placeholders[o.Value]
			switch {
			case o.Value == "":
			case !known && list == nil:
				t.Errorf("%s %s: the value %s is not in the table of placeholders", c.Name, o.Name, o.Value)
			case c.Kind(&o) == commandline.Fixed && list == nil:
				t.Errorf("%s %s: %s stands for fixed words, and the table of words has none", c.Name, o.Name, o.Value)
			}
			if list == nil {
				continue
			}
			used[c.Name+" "+o.Name] = true
			for _, word := range list {
				if text := o.Value + " " + o.Text; o.Text != "" && !regexp.MustCompile(`\b`+word+`\b`).MatchString(text) {
					t.Errorf("%s %s: the help text does not name %q: %s", c.Name, o.Name, word, text)
				}
			}
		}
	}
	for row := range commandline.FixedWords {
		if !used[row] {
			t.Errorf("%q: a row of words for an option that does not exist", row)
		}
	}
}

// flagCall matches the definition of a flag; flagMap the beginning of a loop that defines those in its keys.
var (
	flagCall = regexp.MustCompile(`\b(?:f|set)\.[A-Z]\w*\((?:&[^,"]*, )?"([a-z][a-z-]*)"`)
	flagMap  = regexp.MustCompile(`(?s)range map\[string\][^{]*\{(.*?)\n?\s*\} \{`)
	flagKey  = regexp.MustCompile(`"([a-z-]+)": &`)
)

// TestFlags: the help text of a command has each flag that its source defines.
func TestFlags(t *testing.T) {
	root := sandboxtest.ModuleRoot(t)
	sources := map[string][]string{ // command → source
		"run": {"cmd/corral/flags.go"}, "agent": {"cmd/corral/agent.go"}, "shell": {"cmd/corral/shell.go"},
		"session": {"cmd/corral/session.go"}, "ps": {"cmd/corral/ps.go"},
		"reload": {"cmd/corral/operate.go"}, "kill": {"cmd/corral/operate.go"}, "top": {"cmd/corral-top/top.go"}, "drain": {"cmd/corral/drain.go"},
		"mcp": {"front/server/mcp.go"}, "serve": {"front/server/http.go", "front/server/options.go"}, "exec-server": {"front/server/exec.go"}, "codex-environment": {"front/server/environment.go"},
		"completion": {"front/commands/completion.go"}, "ci": {"front/ci/ci.go", "front/ci/gitlab.go"},
	}
	all := commands.Corral().Commands
	for _, c := range all {
		files := sources[c.Name]
		if files == nil && len(c.Usage) > 0 {
			files, _ = filepath.Glob(filepath.Join(root, "front/commands", c.Name+"*.go"))
			if len(files) == 0 {
				t.Errorf("no source of corral %s was found", c.Name)
			}
		} else {
			for n := range files {
				files[n] = filepath.Join(root, files[n])
			}
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			names := flagsOf(t, file)
			if c.Name == "run" {
				for _, f := range new(job.Limits).Fields() {
					names = append(names, f.Option)
				}
			}
			for _, name := range names {
				if name == "" {
					continue
				}
				listed := func(o commandline.Option) bool { return strings.TrimLeft(o.Name, "-") == name }
				if !slices.ContainsFunc(c.Options, listed) {
					t.Errorf("%s defines --%s, which the help text of corral %s lacks", file, name, c.Name)
				}
			}
		}
	}
	if got := flagsOf(t, filepath.Join(root, "cmd/corral/flags.go")); len(got) < 16 {
		t.Errorf("only %d flags of corral run were found: %q", len(got), got)
	}
}

// flagsOf returns the flags that a file of source defines.
func flagsOf(t *testing.T, file string) (names []string) {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range flagCall.FindAllSubmatch(source, -1) {
		if bytes.Contains(m[0], []byte(".Init(")) { // names the command
			continue
		}
		names = append(names, string(m[1]))
	}
	for _, loop := range flagMap.FindAllSubmatch(source, -1) {
		for _, m := range flagKey.FindAllSubmatch(loop[1], -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
}

// TestComplete: each command, each of its own commands and each option is in each script and in the manual.
func TestComplete(t *testing.T) {
	p := commands.Corral()
	texts := map[string]string{}
	for name, write := range map[string]func(io.Writer) error{"bash": p.Bash, "zsh": p.Zsh, "fish": p.Fish} {
		texts[name] = written(t, write)
	}
	texts["corral.1"] = written(t, func(w io.Writer) error { return p.Man(w, commandline.Source{}) })
	for n := range p.Commands {
		c := &p.Commands[n]
		for name, text := range texts {
			if name != "corral.1" || len(c.Usage) > 0 {
				word(t, name, text, c.Name)
			}
		}
		page := written(t, func(w io.Writer) error { return p.ManOf(c, w, commandline.Source{}) })
		part := map[string]string{
			"bash": caseOf(texts["bash"], c.Name), "zsh": caseOf(texts["zsh"], c.Name), "fish": linesOf(texts["fish"], c.Name),
		}
		if len(c.Usage) > 0 {
			part["corral-"+c.Name+".1"] = page
		}
		for name, text := range part {
			for _, s := range c.Subs {
				word(t, name+" of "+c.Name, text, s.Name)
			}
			for _, o := range c.Options {
				option := o.Name
				if name == "fish" {
					option = "-l " + strings.TrimLeft(o.Name, "-")
					if len(o.Name) == 2 {
						option = "-s " + o.Name[1:]
					}
				}
				word(t, name+" of "+c.Name, text, option)
			}
		}
	}
}

// word fails the test if the text lacks a word or words.
func word(t *testing.T, where, text, words string) {
	t.Helper()
	plain := strings.ReplaceAll(text, `\-`, "-")
	if !regexp.MustCompile(`(^|[^a-z-])` + regexp.QuoteMeta(words) + `($|[^a-z-])`).MatchString(strings.ReplaceAll(plain, `\n`, " ")) {
		t.Errorf("%s: no %q", where, words)
	}
}

// caseOf returns the case of a command in a script: the last one with its name.
func caseOf(script, name string) string {
	i := strings.LastIndex(script, "\n\t"+name+")\n")
	if i < 0 {
		return ""
	}
	part, _, _ := strings.Cut(script[i:], "\n\t\t;;\n")
	return part
}

// linesOf returns the lines of fish's script for a command.
func linesOf(script, name string) string {
	var lines []string
	for line := range strings.Lines(script) {
		if regexp.MustCompile(`from ` + name + `['; ]`).MatchString(line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func written(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var b strings.Builder
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
