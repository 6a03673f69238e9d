package agent

import (
	"slices"
	"strings"

	"corral/internal/nearest"
	"corral/job"
	"corral/mcp/ctxtools"
	"corral/mcp/tool"
)

// languageOf returns the language that a name or alias means.
func languageOf(name string) (ctxtools.Language, error) {
	if strings.TrimSpace(name) == "" {
		return "shell", nil
	}
	all, l := ctxtools.Language("").Choices(), ctxtools.Language("").Named(name)
	if slices.Contains(all, l) {
		return ctxtools.Language(l), nil
	}
	if command, _ := job.ProgramNamed(name); command != "" {
		return "", tool.Invalid("language", "%q is a program: use language shell with code: %s", tool.Clip(name), command)
	}
	hint := ""
	if near := nearest.Of(strings.ToLower(name), all); near != "" {
		hint = " (did you mean " + near + "?)"
	}
	return "", tool.Invalid("language", "%q%s is not one of: %s. To run a program, use language shell, with its command line as code",
		tool.Clip(name), hint, strings.Join(all, ", "))
}

// installed returns the languages among runtimes, nil for all, as a list for a description; the first is the default.
func installed(runtimes []string) string {
	list := []string{"shell (default)"}
	for _, name := range ctxtools.Language("").Choices() {
		if runtime := ctxtools.Language(name).Runtime(); name != "shell" && (runtimes == nil || slices.Contains(runtimes, runtime)) {
			list = append(list, name)
		}
	}
	return strings.Join(list, ", ")
}
