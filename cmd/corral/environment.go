package main

import (
	"fmt"
	"os"
	"strings"

	"corral/job"
)

// environment builds a job's environment from constants, set and pass only, so that it holds none of the caller's
// secrets.
func environment(set, pass []string, tty bool) ([]string, error) {
	values := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin",
		"HOME": job.Home, "USER": "job", "LOGNAME": "job", "SHELL": "/bin/sh", "TMPDIR": "/tmp", "LANG": "C.UTF-8",
		"TERM": "dumb",
	}
	order := []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LANG", "TERM"}
	put := func(name, value string) {
		if _, known := values[name]; !known {
			order = append(order, name)
		}
		values[name] = value
	}
	pass = append([]string{"TZ"}, pass...)
	if tty {
		pass = append(pass, "TERM")
	}
	for _, name := range pass {
		if !isVariable(name) {
			return nil, fmt.Errorf("--env-pass %q: %s", name, variableName)
		}
		if value, ok := os.LookupEnv(name); ok {
			put(name, value)
		}
	}
	for _, s := range set {
		name, value, ok := strings.Cut(s, "=")
		switch { // no error has the value, which may be a secret
		case !ok:
			return nil, fmt.Errorf("--env %q: must be NAME=VALUE\nhint: --env-pass NAME passes a variable of this process", name)
		case !isVariable(name):
			return nil, fmt.Errorf("--env %q=…: %s", name, variableName)
		}
		put(name, value)
	}
	list := make([]string, 0, len(order))
	for _, name := range order {
		list = append(list, name+"="+values[name])
	}
	return list, nil
}

// variableName says what isVariable accepts.
const variableName = "the name must have only letters, digits and underscores, and not begin with a digit"

// isVariable reports whether name matches [A-Za-z_][A-Za-z0-9_]*. It does not use package regexp, whose initialization
// costs every start a quarter of a millisecond.
func isVariable(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
