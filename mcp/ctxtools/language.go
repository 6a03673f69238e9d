package ctxtools

import (
	"fmt"
	"slices"
	"strings"

	"corral/job"
)

// A languageEntry is one that the ctx tools accept code in.
type languageEntry struct {
	Name    string // in arguments
	Runtime string // of package runtimes
	title   string
}

var languages = []languageEntry{
	{"javascript", "node", "JavaScript"},
	{"typescript", "typescript", "TypeScript"},
	{"python", "python", "Python"},
	{"shell", "shell", "Shell"},
	{"ruby", "ruby", "Ruby"},
	{"go", "go", "Go"},
	{"rust", "rust", "Rust"},
	{"php", "php", "PHP"},
	{"perl", "perl", "Perl"},
	{"r", "r", "R"},
	{"elixir", "elixir", "Elixir"},
	{"csharp", "csharp", "C#"},
}

// A Language is the name of a language.
type Language string

// Choices implements Choices.
func (Language) Choices() []string {
	var names []string
	for _, l := range languages {
		names = append(names, l.Name)
	}
	return names
}

// Named implements tool.Named: it knows the words that job.RuntimeNamed does.
func (Language) Named(name string) string {
	runtime := job.RuntimeNamed(name)
	if n := slices.IndexFunc(languages, func(l languageEntry) bool { return l.Runtime == runtime }); n >= 0 {
		return languages[n].Name
	}
	return name
}

// Hint implements tool.Named.
func (Language) Hint(name string) string {
	command, _ := job.ProgramNamed(name)
	if command == "" {
		return ""
	}
	return fmt.Sprintf("%q is a program: use language \"shell\" with code %q", name, command)
}

// languageOf returns the language with this name, which must exist.
func languageOf(name Language) languageEntry {
	n := slices.IndexFunc(languages, func(l languageEntry) bool { return l.Name == string(name) })
	return languages[n]
}

// Runtime returns the runtime of a language, which must exist.
func (l Language) Runtime() string { return languageOf(l).Runtime }

// languageTitle returns the name of a runtime's language for use in a sentence.
func languageTitle(runtime string) string {
	if n := slices.IndexFunc(languages, func(l languageEntry) bool { return l.Runtime == runtime }); n >= 0 {
		return languages[n].title
	}
	return runtime
}

// installedLanguages returns a sentence that lists the languages whose runtimes this host has; nil is all.
func installedLanguages(runtimes []string) string {
	var can, not []string
	for _, l := range languages {
		if runtimes == nil || slices.Contains(runtimes, l.Runtime) {
			can = append(can, l.Name)
		} else {
			not = append(not, l.Name)
		}
	}
	s := "Languages on this host: " + strings.Join(can, ", ") + "."
	if len(can) == 0 {
		s = "This host has no program for any language."
	} else if len(not) > 0 {
		s += fmt.Sprintf(" Not installed: %s.", strings.Join(not, ", "))
	}
	return s
}

// Source returns code in the form in which it is run. Only Go is edited, see wrapGo; package runtimes adds PHP's opening tag.
func (l languageEntry) Source(code string) string {
	if l.Name == "go" {
		return wrapGo(code).String()
	}
	return code
}

// languageLabel returns the source label of a runtime's output. It is that of ctx_execute, whose languages have
// other names than runtimes.
func languageLabel(runtime string) string {
	if n := slices.IndexFunc(languages, func(l languageEntry) bool { return l.Runtime == runtime }); n >= 0 {
		return "execute:" + languages[n].Name
	}
	if runtime == "" {
		return "execute"
	}
	return "execute:" + runtime
}
