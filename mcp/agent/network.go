package agent

import (
	"strings"

	"corral/internal/lazyregexp"
	safe "corral/internal/text"
)

// offline has a pattern for what each client of a package registry or a server writes when it has no network, the most telling ones
// first. A group, if there is one, matches what was requested: a package, or a host.
var offline = lazyregexp.List(
	`npm (?:error|ERR!) request to https?://[^/\s]+/(\S+) failed, reason: getaddrinfo`,
	`GET https?://registry[^/\s]*/(\S+?):? error \((?:EAI_AGAIN|ENOTFOUND)\)`, // pnpm
	`No matching distribution found for (\S+)`,                                // pip
	`(?m)^go: (?:downloading )?(\S+?):? .*(?:module lookup disabled by GOPROXY=off|dial tcp: lookup)`,
	`no required module provides package (\S+);`,
	`missing go\.sum entry for module providing package (\S+)`,
	`(\S+): missing go\.sum entry`,
	"(?:error: no matching package named|the crate) `([^`\\s]+)` (?:found|could not be found in registry)", // cargo
	"failed to (?:download(?: from)?|query replaced source registry) `([^`\\s]+)",
	`Could not find a valid gem '([^']+)'`,
	`(?m)^E: (?:Unable to locate package (\S+)|List directory \S+ is missing|Could not open lock file)`, // apt-get
	`(?i)could not resolve (?:host(?:name)?|proxy):? '?([^\s':]+)`,
	// curl, git, ssh, Maven
	`unable to resolve host address [‘']([^’'\s]+)`, // wget
	`getaddrinfo (?:EAI_AGAIN|ENOTFOUND|for) (\S+)`, // Node, PHP
	`dial tcp: lookup (\S+)`,
	`Failed to connect to (\S+) port \d+`,
	`(?i)network is unreachable`,
	`Temporary failure (?:in name resolution|resolving '([^'\s]+)')`,
)

// loopback matches hosts that are reached without a network.
var loopback = lazyregexp.New(`^(?:localhost|127\.|\[?::1)`)

// maxFetched is the maximum number of bytes shown of the name of the requested package or host.
const maxFetched = 120

// unreachable returns what the footer says about output in which a program reports that it has no network; "" for other output.
func unreachable(parts ...string) string {
	for _, pattern := range offline() {
		for _, output := range parts {
			found := pattern.FindStringSubmatch(output)
			if found == nil {
				continue
			}
			what := "what is missing"
			if len(found) > 1 && found[1] != "" {
				what = safe.Line(strings.TrimSuffix(found[1], ":"), maxFetched)
			}
			if !loopback().MatchString(what) {
				return "there is no network here: ask the user to install or provide " + what
			}
		}
	}
	return ""
}
