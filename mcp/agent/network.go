package agent

import (
	"regexp"

	safe "corral/internal/text"
)

// offline has a pattern for what each client of a package registry writes when it has no network. A group, if there is one,
// matches the name of the package or host that the client requested.
var offline = []*regexp.Regexp{
	regexp.MustCompile(`npm (?:error|ERR!) request to (\S+) failed, reason: getaddrinfo`),
	regexp.MustCompile(`No matching distribution found for (\S+)`), // pip, after each attempt to reach an index failed
	regexp.MustCompile(`(?m)^go: (?:downloading )?(\S+?):? .*(?:module lookup disabled by GOPROXY=off|dial tcp: lookup)`),
	regexp.MustCompile(`no required module provides package (\S+);`),
	regexp.MustCompile("failed to (?:download from|query replaced source registry) `([^`\\s]+)`"), // cargo
	regexp.MustCompile(`(?i)could not resolve (?:host(?:name)?|proxy):? '?([^\s']+)`),             // curl, git, ssh, Maven
	regexp.MustCompile(`Temporary failure (?:in name resolution|resolving '([^'\s]+)')`),
}

// maxFetched is the maximum number of bytes shown of the name of the requested package or host.
const maxFetched = 120

// unreachable returns what the footer says about output in which a program reports that it has no network; "" for other output.
func unreachable(parts ...string) string {
	for _, pattern := range offline {
		for _, output := range parts {
			found := pattern.FindStringSubmatch(output)
			if found == nil {
				continue
			}
			what := "what is missing"
			if len(found) > 1 && found[1] != "" {
				what = safe.Line(found[1], maxFetched)
			}
			return "there is no network here: ask the user to install or provide " + what
		}
	}
	return ""
}
