package network

import (
	"strconv"
	"strings"
	"time"
)

// String returns the rule as an entry of `allow` is written, on one line: "host: example.org", or with braces if it has more
// than one key.
func (r Rule) String() string {
	var keys []string
	add := func(key, value string) {
		if value != "" {
			keys = append(keys, key+": "+value)
		}
	}
	add("preset", r.Preset)
	add("host", quoted(r.Host))
	if len(r.Ports) > 0 {
		ports := make([]string, len(r.Ports))
		for i, port := range r.Ports {
			ports[i] = strconv.Itoa(int(port))
		}
		add("ports", "["+strings.Join(ports, ", ")+"]")
	}
	add("protocol", r.Protocol)
	if len(r.Methods) > 0 {
		add("methods", "["+strings.Join(r.Methods, ", ")+"]")
	}
	if len(r.Paths) > 0 {
		paths := make([]string, len(r.Paths))
		for i, path := range r.Paths {
			paths[i] = strconv.Quote(path)
		}
		add("paths", "["+strings.Join(paths, ", ")+"]")
	}
	if len(r.Headers) > 0 {
		add("headers", "["+strings.Join(r.Headers, ", ")+"]")
	}
	add("secret", r.Secret)
	add("registry", r.Registry)
	if r.MinAge != 0 {
		add("min_age", FormatAge(r.MinAge))
	}
	if len(keys) == 1 {
		return keys[0]
	}
	return "{" + strings.Join(keys, ", ") + "}"
}

const day = 24 * time.Hour

// FormatAge returns a time as `min_age` is written, in days if it is some.
func FormatAge(d time.Duration) string {
	if d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	return d.String()
}

// quoted returns a pattern as YAML has it. A letter and a dot make it text in every version of YAML: "no" and 1.e3 are not.
func quoted(host string) string {
	if host == "" || host[0] >= 'a' && host[0] <= 'z' && strings.Contains(host, ".") {
		return host
	}
	return strconv.Quote(host)
}

// listed returns a rule as the line of a list.
func listed(r Rule) string { return "- " + r.String() }

// suggestion returns the line of `allow` for a connection, "" if no rule can allow it.
func suggestion(hosts pattern, port uint16) string {
	rule := wouldAllow(hosts, port)
	if rule.Check() != nil { // a name that is a preset's, or "none"
		return ""
	}
	return listed(rule)
}

// wouldAllow returns the rule for a connection: the preset that has it, or an entry for the host alone. Port 0 is any of
// hosts' usual ones.
func wouldAllow(hosts pattern, port uint16) Rule {
	for _, p := range presets {
		for _, rule := range p.Rules {
			s, err := rule.scope()
			if err == nil && s.hosts.has(hosts) && (port == 0 || s.opens(port)) {
				return Rule{Preset: p.Name}
			}
		}
	}
	return usual(hosts, port)
}

// usual returns the rule for a host with the protocol that is usual at the port. Port 0 is the usual one.
func usual(hosts pattern, port uint16) Rule {
	r := Rule{Host: hosts.String()}
	switch port {
	case 0, 443:
	case 80:
		r.Protocol = HTTP
	case 8443:
		r.Ports = []uint16{port}
	case 8000, 8080:
		r.Ports, r.Protocol = []uint16{port}, HTTP
	default:
		r.Ports, r.Protocol = []uint16{port}, TCP
	}
	return r
}
