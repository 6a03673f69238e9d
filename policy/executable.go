package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"corral/internal/text"
	"corral/job"
	"corral/policy/runtimes"
)

func compatible(_ context.Context, c *chain) []string {
	name := c.r.Executable
	if name == "" {
		return nil
	}
	text := fmt.Sprintf("Executable %q is not compatible with runtime %q", name, c.r.Runtime)
	switch {
	case !c.runtime.Compatible(name):
		return append([]string{text}, c.insteadOf(name)...)
	case strings.IndexByte(name, 0) >= 0, strings.Contains(name, "/") && !filepath.IsAbs(name):
		// A path relative to the working directory would be a file of the repository.
		return []string{text, "An executable must be a name or an absolute path"}
	}
	return nil
}

// insteadOf returns how a program that is none of the runtime's can be run, or nil if that is not known.
func (c *chain) insteadOf(name string) []string {
	command, args := job.ProgramNamed(name)
	switch {
	case args != nil && c.r.Runtime == "python":
		words, _ := json.Marshal(args)
		return []string{fmt.Sprintf("Leave out executable and begin args with %s, or use runtime \"shell\" with code %q", words, command)}
	case command != "":
		return []string{fmt.Sprintf("Use runtime \"shell\" with code %q", command)}
	}
	return nil
}

// allowedExecutable chooses the program. If the host has none, the request is still allowed: c.missing says so.
func allowedExecutable(_ context.Context, c *chain) []string {
	switch {
	case c.isCommand():
		return allowedCommand(c)
	case c.isStarlark():
		return nil
	}
	for _, try := range c.tries() {
		choice, missing := c.p.installed.Choose(c.r.Runtime, try.executable, try.allowed)
		if missing == "" {
			c.choice, c.missing = choice, ""
			return nil
		}
		if c.missing == "" {
			c.missing = missing
		}
	}
	if c.missing != "" {
		return nil
	}
	name := c.r.Executable
	if name == "" {
		name = c.runtime.Candidates()[0]
	}
	return []string{fmt.Sprintf("Executable %q is not in the allowed executables list", name)}
}

// has reports whether this host has a permitted program for a runtime.
func (p *Policy) has(runtime string) bool {
	c := p.chain(&job.Request{Runtime: runtime})
	var ok bool
	if c.runtime, ok = runtimes.Lookup(runtime); !ok {
		return false
	}
	return allowedExecutable(context.Background(), c) == nil && c.missing == ""
}

// A try is one attempt to find a program.
type try struct {
	executable string
	allowed    func(name string) bool
}

// tries returns the permitted ways to find a program for the request, none if it is not allowed: first by the names
// on the list, in the runtime's order, then by the paths on it.
func (c *chain) tries() []try {
	list := c.p.rules.Executables
	if list == nil {
		return []try{{c.r.Executable, nil}}
	}
	base := filepath.Base(c.r.Executable)
	named := func(name string) bool { return slices.Contains(list, name) }
	var tries []try
	switch {
	case c.r.Executable == "" && slices.ContainsFunc(c.runtime.Candidates(), named):
		tries = append(tries, try{"", named})
	case c.r.Executable != "" && named(base):
		return []try{{c.r.Executable, nil}}
	}
	for _, path := range list {
		if !filepath.IsAbs(path) || !c.runtime.Compatible(path) {
			continue
		}
		if asked := c.r.Executable; asked == "" || asked == path || asked == filepath.Base(path) {
			tries = append(tries, try{path, nil})
		}
	}
	return tries
}

// program describes the chosen program, for people.
func (c *chain) program() string {
	switch {
	case c.r.Builtin != job.ToolNone:
		return "corral-layer " + string(c.r.Builtin)
	case c.isCommand():
		return text.Line(c.r.Command[0], maxSaid)
	case c.isStarlark():
		return "corral-starlark"
	case c.missing != "":
		return "missing: " + text.Line(c.missing, maxSaid)
	case c.choice.Path == c.choice.Real:
		return c.choice.Path
	}
	return c.choice.Path + " (" + c.choice.Real + ")"
}

var _ Installed = runtimes.Installed{}
