package ctxtools

import (
	"fmt"
	"slices"
	"strings"
)

// A language is one that the ctx tools accept code in.
type language struct {
	name    string // in arguments
	runtime string // of package runtimes
	title   string
}

var languages = []language{
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

// A languageName is the name of a language.
type languageName string

// Choices implements Choices.
func (languageName) Choices() []string {
	var names []string
	for _, l := range languages {
		names = append(names, l.name)
	}
	return names
}

// languageOf returns the language with this name, which must exist.
func languageOf(name languageName) language {
	n := slices.IndexFunc(languages, func(l language) bool { return l.name == string(name) })
	return languages[n]
}

// title returns the name of a runtime's language for use in a sentence.
func title(runtime string) string {
	if n := slices.IndexFunc(languages, func(l language) bool { return l.runtime == runtime }); n >= 0 {
		return languages[n].title
	}
	return runtime
}

// installed returns a sentence that lists the languages whose runtimes this host has; nil is all.
func installed(runtimes []string) string {
	var can, not []string
	for _, l := range languages {
		if runtimes == nil || slices.Contains(runtimes, l.runtime) {
			can = append(can, l.name)
		} else {
			not = append(not, l.name)
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

// source returns code in the form in which it is run. Only Go is edited, see wrapGo; package runtimes adds PHP's opening tag.
func (l language) source(code string) string {
	if l.name == "go" {
		return wrapGo(code).String()
	}
	return code
}

// labelOf returns the source label of a runtime's output. It is that of ctx_execute, whose languages have
// other names than runtimes.
func labelOf(runtime string) string {
	if n := slices.IndexFunc(languages, func(l language) bool { return l.runtime == runtime }); n >= 0 {
		return "execute:" + languages[n].name
	}
	if runtime == "" {
		return "execute"
	}
	return "execute:" + runtime
}
