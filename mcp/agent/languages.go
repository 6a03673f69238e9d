package agent

import (
	"slices"
	"strings"

	"corral/internal/nearest"
	"corral/mcp/ctxtools/language"
	"corral/mcp/tool"
)

// aliases are other names of languages, in lower case.
var aliases = map[string]language.Name{
	"": "shell", "bash": "shell", "sh": "shell", "zsh": "shell", "console": "shell",
	"node": "javascript", "nodejs": "javascript", "js": "javascript", "ts": "typescript", "tsx": "typescript",
	"py": "python", "python3": "python", "rb": "ruby", "golang": "go", "rs": "rust", "pl": "perl", "exs": "elixir", "c#": "csharp",
}

// commands are programs that callers pass as a language, each with the command for a shell.
var commands = map[string]string{
	"pytest": "python3 -m pytest", "pip": "python3 -m pip …", "jest": "npx jest", "cargo": "cargo …", "npm": "npm …", "npx": "npx …",
	"make": "make …", "git": "git …", "grep": "grep …", "gcc": "gcc …", "java": "java …", "tsc": "npx tsc", "mvn": "mvn …",
}

// languageOf returns the language that a name or alias means.
func languageOf(name string) (language.Name, error) {
	word := strings.ToLower(strings.TrimSpace(name))
	if l, ok := aliases[word]; ok {
		return l, nil
	}
	all := language.Name("").Choices()
	if slices.Contains(all, word) {
		return language.Name(word), nil
	}
	if command := commands[word]; command != "" {
		return "", tool.Invalid("language", "%q is a program: use language shell with code: %s", tool.Clip(name), command)
	}
	hint := ""
	if near := nearest.Of(word, all); near != "" {
		hint = " (did you mean " + near + "?)"
	}
	return "", tool.Invalid("language", "%q%s is not one of: %s. To run a program, use language shell, with its command line as code",
		tool.Clip(name), hint, strings.Join(all, ", "))
}

// installed returns the languages among runtimes, nil for all, as a list for a description; the first is the default.
func installed(runtimes []string) string {
	list := []string{"shell (default)"}
	for _, name := range language.Name("").Choices() {
		if runtime := language.Of(language.Name(name)).Runtime; name != "shell" && (runtimes == nil || slices.Contains(runtimes, runtime)) {
			list = append(list, name)
		}
	}
	return strings.Join(list, ", ")
}
