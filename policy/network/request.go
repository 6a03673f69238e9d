package network

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bounds of the parts of a Rule that are about requests.
const (
	maxMethods = 16
	maxPaths   = 64
	maxPath    = 512 // bytes
	maxHeaders = 32
	maxSecret  = 64 // bytes of a name
)

// HTTPS is the protocol of a connection whose TLS ends before the host, because a rule is about the requests in it. An operator
// writes no protocol, or TLS.
const HTTPS = "https"

// Inspects reports whether one of the rules is about requests.
func (r *Rules) Inspects() bool {
	return slices.ContainsFunc(r.Allow, func(rule Rule) bool {
		preset, _ := presetNamed(rule.Preset)
		return rule.inspects() || slices.ContainsFunc(preset.Rules, Rule.inspects)
	})
}

// Secrets returns the names of the secrets in the rules, in their order.
func (r *Rules) Secrets() []string {
	var names []string
	for _, rule := range r.Allow {
		if rule.Secret != "" && !slices.Contains(names, rule.Secret) {
			names = append(names, rule.Secret)
		}
	}
	return names
}

// inspects reports whether a rule is about requests.
func (r Rule) inspects() bool {
	return len(r.Methods) > 0 || len(r.Paths) > 0 || r.Secret != "" || r.Registry != "" || r.MinAge != 0
}

// The kinds of registries. Each is also the name of the preset of its public hosts.
const (
	Go     = "go"
	NPM    = "npm"
	PyPI   = "pypi"
	Cargo  = "cargo"
	Debian = "debian"
)

// Bounds of MinAge.
const (
	minMinAge = time.Minute
	maxMinAge = 366 * day
)

// checkRegistry returns the first mistake in what a rule says about a registry.
func (r Rule) checkRegistry() error {
	who := cmp.Or(r.Host, "preset "+r.Preset)
	switch {
	case r.Registry == "" && r.MinAge == 0:
		return nil
	case r.Registry == "":
		return fmt.Errorf("%q: `min_age` needs `registry`, which says how the host tells when a version was published", who)
	case !slices.Contains([]string{Go, NPM, PyPI, Cargo, Debian}, r.Registry):
		return fmt.Errorf("%q: `registry` must be go, npm, pypi, cargo or debian, got %s", who, shown(r.Registry))
	case r.Preset != "" && r.Registry != r.Preset:
		return fmt.Errorf("%q: its `registry` must be %s, got %s", who, r.Preset, r.Registry)
	case len(r.Methods) > 0:
		return fmt.Errorf("%q: `registry` allows GET and HEAD alone: write another entry for other methods", who)
	case r.Protocol == TCP, r.Protocol == HTTP && r.Registry != Debian:
		return fmt.Errorf("%q: `registry: %s` needs `protocol: tls`, got %s", who, r.Registry, r.Protocol)
	case r.MinAge != 0 && r.Registry == Debian:
		return fmt.Errorf("%q: `min_age` is not for debian: its indexes do not say when a version was published", who)
	case r.MinAge != 0 && (r.MinAge < minMinAge || r.MinAge > maxMinAge):
		return fmt.Errorf("%q: `min_age` must be between %v and %s, got %v", who, minMinAge, FormatAge(maxMinAge), r.MinAge)
	}
	return nil
}

// checkRequests returns the first mistake in what a rule says about requests.
func (r Rule) checkRequests() error {
	switch {
	case (len(r.Methods) > 0 || len(r.Paths) > 0 || r.Secret != "") && r.protocol() != HTTPS:
		return fmt.Errorf("%q: `methods`, `paths` and `secret` need `protocol: tls`, got %s", r.Host, r.Protocol)
	case len(r.Methods) > maxMethods || len(r.Paths) > maxPaths:
		return fmt.Errorf("%q has %d methods and %d paths, the maximum is %d and %d", r.Host, len(r.Methods), len(r.Paths), maxMethods, maxPaths)
	case len(r.Headers) > 0 && !r.namesRequests():
		return fmt.Errorf("%q: `headers` needs `methods` or `paths`: without both, all headers are passed on", r.Host)
	case len(r.Headers) > maxHeaders:
		return fmt.Errorf("%q has %d headers, the maximum is %d", r.Host, len(r.Headers), maxHeaders)
	case r.Secret != "" && !IsSecretName(r.Secret):
		return fmt.Errorf("%q: %s, got %s", r.Host, secretNameRule, shown(r.Secret))
	}
	for _, method := range r.Methods {
		if err := CheckMethod(method); err != nil {
			return fmt.Errorf("%q: %w", r.Host, err)
		}
	}
	for _, path := range r.Paths {
		if err := CheckPath(path); err != nil {
			return fmt.Errorf("%q: path %s: %w", r.Host, shown(path), err)
		}
	}
	for _, header := range r.Headers {
		if err := CheckHeader(header); err != nil {
			return fmt.Errorf("%q: %w", r.Host, err)
		}
	}
	return nil
}

// namesRequests reports whether a rule allows some requests of its host and not others.
func (r Rule) namesRequests() bool { return len(r.Methods) > 0 || len(r.Paths) > 0 }

const secretNameRule = "the name of a secret has 1 to 64 letters in lower case, digits, hyphens and underscores"

// IsSecretName reports whether a secret can have a name.
func IsSecretName(name string) bool {
	return name != "" && len(name) <= maxSecret && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// CheckMethod returns why a method cannot be one of Rule.Methods.
func CheckMethod(method string) error {
	if method == "" || len(method) > maxSecret || strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" || method == "CONNECT" ||
		method == "TRACE" {
		return fmt.Errorf("a method must be in capital letters, and neither CONNECT nor TRACE, got %s", shown(method))
	}
	return nil
}

// CheckHeader returns why the name of a header cannot be one of Rule.Headers.
func CheckHeader(name string) error {
	if name == "" || len(name) > maxSecret || strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		return fmt.Errorf("the name of a header has 1 to %d letters, digits, hyphens and underscores, got %s", maxSecret, shown(name))
	}
	return nil
}

// CheckPath returns why a pattern cannot be one of Rule.Paths.
func CheckPath(path string) error {
	if len(path) > maxPath || !strings.HasPrefix(path, "/") {
		return fmt.Errorf("must begin with a slash, and have at most %d bytes", maxPath)
	}
	if strings.ContainsFunc(path, func(c rune) bool { return c <= ' ' || c == 0x7f || strings.ContainsRune(`\?#`, c) }) {
		return fmt.Errorf("must not have blanks, control characters, backslashes, ? or #")
	}
	segments := strings.Split(path[1:], "/")
	for n, segment := range segments {
		last := n == len(segments)-1
		switch {
		case segment == "." || segment == ".." || segment == "" && !last:
			return fmt.Errorf("must not have a segment that is empty or only dots")
		case segment == "**" && !last, strings.Contains(segment, "*") && segment != "*" && segment != "**":
			return fmt.Errorf("* must be a whole segment, and ** the last one")
		}
	}
	return nil
}

// A RequestDecision says whether a request may be made.
type RequestDecision struct {
	Allowed bool
	Secret  string // the name of the secret that the placeholder stands for; "" if it stands for none
	Why     string // why it is not allowed
	// Headers are those of the rule. AllHeaders says that it names neither methods nor paths: the request may have all.
	Headers    []string
	AllHeaders bool
	// For a request to a registry: its kind, the minimum age of a version, and the rule, as it is written. "" for others.
	Registry string
	MinAge   time.Duration
	Rule     string
}

// Request decides about a request on a connection with the protocol HTTPS or HTTP. The path is decoded, without a query.
func (s *Set) Request(name string, port uint16, method, path string) RequestDecision {
	d := s.Decide(name, port)
	if !d.Allowed {
		return RequestDecision{Why: d.Why}
	}
	hosts := pattern{name: name}
	for _, a := range s.allow {
		same := a.protocol != TCP && (a.protocol == HTTP) == (d.Protocol == HTTP)
		if a.hosts.has(hosts) && a.opens(port) && same && a.one.hasRequest(method, path) {
			one := a.one
			return RequestDecision{
				Allowed: true, Secret: one.Secret, Headers: one.Headers, AllHeaders: !one.namesRequests(),
				Registry: one.Registry, MinAge: one.MinAge, Rule: a.rule.String(),
			}
		}
	}
	return RequestDecision{Why: fmt.Sprintf("no rule allows %.20s of %.200q at %s", method, path, name)}
}

// Secrets returns the names of the secrets that some request to a port of a name is given, in the order of the rules.
func (s *Set) Secrets(name string, port uint16) []string {
	var names []string
	for _, a := range s.allow {
		if a.one.Secret != "" && a.hosts.has(pattern{name: name}) && a.opens(port) && !slices.Contains(names, a.one.Secret) {
			names = append(names, a.one.Secret)
		}
	}
	return names
}

// Registries reports whether r has a rule of a registry.
func (r *Rules) Registries() bool {
	return slices.ContainsFunc(r.Allow, func(rule Rule) bool { return rule.Registry != "" })
}

func (r Rule) hasRequest(method, path string) bool {
	if r.Registry != "" && method != "GET" && method != "HEAD" {
		return false
	}
	if len(r.Methods) > 0 && !slices.Contains(r.Methods, method) {
		return false
	}
	return len(r.Paths) == 0 || slices.ContainsFunc(r.Paths, func(p string) bool { return matches(p, path) })
}

// matches reports whether a path is one of a pattern's: * is any segment, and ** at the end one or more.
func matches(pattern, path string) bool {
	if !strings.HasPrefix(path, "/") {
		return false
	}
	want, got := strings.Split(pattern[1:], "/"), strings.Split(path[1:], "/")
	for n, segment := range want {
		switch {
		case n >= len(got):
			return false
		case segment == "**":
			return true
		case segment != got[n] && (segment != "*" || got[n] == ""):
			return false
		}
	}
	return len(want) == len(got)
}
