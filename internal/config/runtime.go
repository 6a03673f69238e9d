package config

import (
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"corral/job"
)

// Runtime governs the tools that run code.
type Runtime struct {
	Enabled     bool     // runtime.enabled
	Runtimes    []string // runtime.runtimes: those that may be used, of job.AllRuntimes, in the file's order
	Executables []string // runtime.executables: base names or absolute paths of programs that may be run; nil is what each runtime has
	Env         []string // runtime.env.allow: names of the front-end's variables that a job may have; nil is none
	// RuntimeEnv is runtime.runtime_env: variables of one runtime's jobs, by runtime and name. That their names are in
	// Env is the policy's to see.
	RuntimeEnv        map[string]map[string]string
	MaxDuration       time.Duration // runtime.max_duration: the longest that can be asked for, and what holds if nothing is asked
	MaxConcurrentJobs int           // runtime.max_concurrent_jobs
	QueueWait         time.Duration // runtime.queue_wait: how long a call waits for another to end; 0 is not at all
	QueueLength       int           // runtime.queue_length: how many calls wait
	Rules             string        // runtime.rules: absolute path of the operator's rules in Starlark; "" is none
	Defaults          job.Limits    // runtime.defaults: zero fields leave it to Config.Defaults
}

// Bounds of what runtime can say.
const (
	minDuration = 100 * time.Millisecond
	maxDuration = 10 * time.Minute // of one call, whoever asks
	maxQueue    = 10_000
	maxValue    = 32 << 10 // bytes of a variable
)

func (r *Runtime) keys() []key {
	return []key{
		flagKey("enabled", &r.Enabled),
		{"runtimes", func(p *parser, n *yaml.Node) { r.Runtimes = p.runtimes("runtimes", n) }},
		{"executables", func(p *parser, n *yaml.Node) { r.Executables = p.some("executables", n, executable) }},
		{"env", func(p *parser, n *yaml.Node) { p.mapping("env", n, envKeys(&r.Env)) }},
		{"runtime_env", func(p *parser, n *yaml.Node) { r.readEnv(p, n) }},
		timeKey("max_duration", &r.MaxDuration, minDuration, maxDuration),
		countKey("max_concurrent_jobs", &r.MaxConcurrentJobs, 65536),
		{"queue_wait", func(p *parser, n *yaml.Node) {
			r.QueueWait = time.Duration(p.number("queue_wait", "wait", n, 0, int64(maxDuration)))
		}},
		countKey("queue_length", &r.QueueLength, maxQueue),
		{"rules", func(p *parser, n *yaml.Node) { r.Rules = p.path("rules", n) }},
		limitsKey("defaults", &r.Defaults),
	}
}

// readEnv reads variables by runtime.
func (r *Runtime) readEnv(p *parser, n *yaml.Node) {
	p.entries("runtime_env", n, func(name string, k, v *yaml.Node) {
		if !p.known(k, "runtime", name, job.Runtimes()) {
			return
		}
		p.entries(name, v, func(variableName string, k, v *yaml.Node) {
			if why := variable(variableName); why != "" {
				p.fail(k, "%q: %s is wanted", shorten(variableName), why)
				return
			}
			r.setEnv(name, variableName, p.value(variableName, v))
		})
	})
}

func (r *Runtime) setEnv(runtime, name, value string) {
	if r.RuntimeEnv == nil {
		r.RuntimeEnv = map[string]map[string]string{}
	}
	if r.RuntimeEnv[runtime] == nil {
		r.RuntimeEnv[runtime] = map[string]string{}
	}
	r.RuntimeEnv[runtime][name] = value
}

// value reads the value of a variable: text, or a number as it is written.
func (p *parser) value(name string, n *yaml.Node) string {
	tag := n.ShortTag()
	if n.Kind != yaml.ScalarNode || tag != "!!str" && tag != "!!int" && tag != "!!float" {
		p.wanted(name, "text", n)
		return ""
	}
	if len(n.Value) > maxValue || strings.IndexByte(n.Value, 0) >= 0 {
		p.fail(n, "`%s`: text without NUL of at most %d bytes is wanted", name, maxValue)
	}
	return n.Value
}

// runtimes reads names of runtimes.
func (p *parser) runtimes(name string, n *yaml.Node) []string {
	known := job.AllRuntimes()
	names := p.some(name, n, nil)
	if n.Kind == yaml.SequenceNode {
		for _, one := range n.Content {
			if one.Kind == yaml.ScalarNode && one.ShortTag() == "!!str" {
				p.known(one, "runtime", one.Value, known)
			}
		}
	}
	return names
}

// executable says what is wanted of the name or the path of a program.
func executable(s string) string {
	base := filepath.Base(s)
	if base == "." || base == ".." || base == "/" || len(s) > 4096 || strings.ContainsAny(s, "\x00\n") ||
		s != base && (!filepath.IsAbs(s) || filepath.Clean(s) != s) {
		return "a program's name, or its absolute path,"
	}
	return ""
}

// variable says what is wanted of the name of a variable.
func variable(s string) string {
	const letters = "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if s == "" || len(s) > 128 || strings.Trim(s, letters+"0123456789") != "" || !strings.ContainsRune(letters, rune(s[0])) {
		return "a variable's name (letters, digits and underscores)"
	}
	return ""
}
