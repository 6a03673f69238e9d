package agent

import (
	"strings"
	"testing"

	"corral/internal/test/mcptest"
)

// recorded are outputs of programs that had no network, as they wrote them in jails with the variables that jobs have, and what a
// reply says is missing. Those of pnpm and of apt-get as root are as these
// programs are known to write them.
var recorded = []struct{ program, output, missing string }{
	{"npm", "npm error code EAI_AGAIN\nnpm error syscall getaddrinfo\nnpm error errno EAI_AGAIN\nnpm error request to https://registry.npmjs.org/left-pad failed, reason: getaddrinfo EAI_AGAIN registry.npmjs.org\nnpm error A complete log of this run can be found in: /home/job/.npm/_logs/2026-11-23T15_20_52_533Z-debug-0.log\n", "left-pad"},
	{"pnpm", " WARN  GET https://registry.npmjs.org/left-pad error (EAI_AGAIN). Will retry in 10 seconds. 2 retries left.\n", "left-pad"},
	{"pip", "Defaulting to user installation because normal site-packages is not writeable\nERROR: Could not find a version that satisfies the requirement flask (from versions: none)\nERROR: No matching distribution found for flask\n", "flask"},
	{"go get", "go: github.com/google/uuid@latest: module lookup disabled by GOPROXY=off\n", "github.com/google/uuid@latest"},
	{"go get with a proxy", "go: github.com/google/uuid@latest: module github.com/google/uuid: Get \"https://proxy.golang.org/github.com/google/uuid/@v/list\": dial tcp: lookup proxy.golang.org on [::1]:53: read udp [::1]:55219->[::1]:53: read: connection refused\n", "github.com/google/uuid@latest"},
	{"go mod download", "go: github.com/google/uuid@v1.6.0: module lookup disabled by GOPROXY=off\n", "github.com/google/uuid@v1.6.0"},
	{"go build", "m.go:2:8: missing go.sum entry for module providing package github.com/google/uuid (imported by x); to add:\n\tgo get x\n", "github.com/google/uuid"},
	{"go build without a requirement", "a.go:3:8: no required module provides package example.com/z; to add it:\n\tgo get example.com/z\n", "example.com/z"},
	{"cargo add", "error: the crate `rand` could not be found in registry index.\n", "rand"},
	{"cargo build", "error: no matching package named `rand` found\nlocation searched: registry `crates-io`\nrequired by package `x v0.1.0 (/work/net)`\nAs a reminder, you're using offline mode (--offline) which can sometimes cause surprising resolution failures, if this error is too confusing you may wish to retry without the offline flag.\n", "rand"},
	{"cargo with its network", "error: failed to download from `https://index.crates.io/config.json`\n", "https://index.crates.io/config.json"},
	{"gem", "ERROR:  Could not find a valid gem 'rake-foo' (>= 0), here is why:\n          Unable to download data from https://rubygems.org/ - SocketError: Failed to open TCP connection to rubygems.org:443 (getaddrinfo: Temporary failure in name resolution) (https://rubygems.org/specs.4.8.gz)\n", "rake-foo"},
	{"git", "Cloning into 'git'...\nfatal: unable to access 'https://github.com/git/git/': Could not resolve host: github.com\n", "github.com"},
	{"git over ssh", "Cloning into 'git'...\nssh: Could not resolve hostname github.com: Temporary failure in name resolution\nfatal: Could not read from remote repository.\n", "github.com"},
	{"curl", "curl: (6) Could not resolve host: example.com\n", "example.com"},
	{"curl of an address", "curl: (7) Failed to connect to 93.184.216.34 port 80 after 7 ms: Couldn't connect to server\n", "93.184.216.34"},
	{"wget", "--2026-11-23 15:21:11--  https://example.com/\nResolving example.com (example.com)... failed: Temporary failure in name resolution.\nwget: unable to resolve host address ‘example.com’\n", "example.com"},
	{"apt-get update", "E: List directory /var/lib/apt/lists/partial is missing. - Acquire (2: No such file or directory)\n", "what is missing"},
	{"apt-get install", "E: Could not open lock file /var/lib/dpkg/lock-frontend - open (2: No such file or directory)\nE: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), are you root?\n", "what is missing"},
	{"apt-get as root", "Err:1 http://deb.debian.org/debian bookworm InRelease\n  Temporary failure resolving 'deb.debian.org'\n", "deb.debian.org"},
	{"node", "TypeError: fetch failed\n    at node:internal/deps/undici/undici:14976:13 {\n  [cause]: Error: getaddrinfo EAI_AGAIN example.com\n      at GetAddrInfoReqWrap.onlookupall [as oncomplete] (node:dns:122:26) {\n", "example.com"},
	{"python", "socket.gaierror: [Errno -3] Temporary failure in name resolution\n", "what is missing"},
	{"python of an address", "OSError: [Errno 101] Network is unreachable\n", "what is missing"},
	{"php", "PHP Warning:  file_get_contents(): php_network_getaddresses: getaddrinfo for example.com failed: Temporary failure in name resolution in Command line code on line 1\n", "example.com"},
	{"a failed test", "--- FAIL: TestTotal\n", ""},
	{"a server that does not run", "curl: (7) Failed to connect to localhost port 8080 after 0 ms: Couldn't connect to server\n", ""},
	{"another server that does not run", "curl: (7) Failed to connect to 127.0.0.1 port 8080 after 0 ms: Couldn't connect to server\n", ""},
}

// TestNoNetwork checks that a reply says so when a program had no network, and what was missing: of a program that failed, and in the
// standard error of one that hid it.
func TestNoNetwork(t *testing.T) {
	const says = ", there is no network here: ask the user to install or provide "
	for _, tt := range recorded {
		for _, code := range []int{1, 0} {
			f := mcptest.NewFakeRunner()
			if f.Stderr = tt.output; code > 0 {
				f.ExitsWith(code)
			}
			r := call(t, &Run{newSuite(t, f)}, `{"code":"x"}`)
			_, said, has := strings.Cut(r.Text, says)
			if has != (tt.missing != "") || has && said != tt.missing+"]" {
				t.Errorf("%s, exit code %d: %q", tt.program, code, r.Text)
			}
		}
	}
	f := mcptest.NewFakeRunner()
	f.Stdout = "Could not resolve host: example.com\n"
	if r := call(t, &Run{newSuite(t, f)}, `{"code":"cat log"}`); strings.Contains(r.Text, "no network") {
		t.Errorf("of a command that showed such a text: %q", r.Text)
	}
}
