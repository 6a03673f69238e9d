package job

import (
	"slices"
	"strings"
)

// synonyms are other names of runtimes, in lower case, that callers know from other tools.
var synonyms = map[string]string{
	"javascript": "node", "nodejs": "node", "js": "node", "mjs": "node", "ts": "typescript", "tsx": "typescript",
	"py": "python", "python3": "python", "bash": "shell", "sh": "shell", "zsh": "shell", "console": "shell", "golang": "go",
	"rb": "ruby", "rs": "rust", "pl": "perl", "exs": "elixir", "c#": "csharp", "cs": "csharp", "c++": "cpp", "kt": "kotlin",
}

// RuntimeNamed returns the runtime that a name or one of its synonyms means, in either case; "" if there is none.
func RuntimeNamed(name string) string {
	word := strings.ToLower(strings.TrimSpace(name))
	if slices.Contains(Runtimes(), word) {
		return word
	}
	return synonyms[word]
}

// A program is one that callers name where a runtime or its executable is expected.
type program struct {
	command string   // for a shell
	args    []string // that make the runtime's own program run it, nil if it is a program of its own
}

var programs = map[string]program{
	"pytest": {"python3 -m pytest", []string{"-m", "pytest"}}, "pip": {"python3 -m pip …", []string{"-m", "pip"}},
	"pip3": {"python3 -m pip …", []string{"-m", "pip"}}, "unittest": {"python3 -m unittest", []string{"-m", "unittest"}},
	"mypy": {"python3 -m mypy …", []string{"-m", "mypy"}}, "ruff": {"python3 -m ruff …", []string{"-m", "ruff"}},
	"jest": {"npx jest", nil}, "vitest": {"npx vitest", nil}, "mocha": {"npx mocha", nil}, "eslint": {"npx eslint …", nil},
	"tsc": {"npx tsc", nil}, "npm": {"npm …", nil}, "npx": {"npx …", nil}, "yarn": {"yarn …", nil}, "pnpm": {"pnpm …", nil},
	"cargo": {"cargo …", nil}, "make": {"make …", nil}, "git": {"git …", nil}, "grep": {"grep …", nil}, "mvn": {"mvn …", nil},
	"gradle": {"gradle …", nil}, "rspec": {"rspec …", nil}, "bundle": {"bundle …", nil}, "composer": {"composer …", nil},
	"cmake": {"cmake …", nil}, "gofmt": {"gofmt …", nil}, "gcc": {"gcc …", nil},
}

// ProgramNamed returns what a caller can do who passed a program as the name of a runtime or as its executable: command runs it in a
// shell; args, if not nil, make the runtime's own program run it. command is "" if the program is unknown.
func ProgramNamed(name string) (command string, args []string) {
	word := strings.ToLower(strings.TrimSpace(name))
	p := programs[word[strings.LastIndexByte(word, '/')+1:]]
	return p.command, p.args
}
